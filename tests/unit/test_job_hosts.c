/* Lists of nodes as users and batch systems give them, plans in the environment, variables that #FP lines speak of, words of a shell. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/command.h"
#include "jobscripts/launch/address.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/launch/variables.h"

static void is_list(const char *text, const char *want)
{
    char why[JOB_HOSTS_WHY_BYTES] = "", got[512] = "", **nodes;
    uint32_t n;
    int rc = job_hosts_read(text, &nodes, &n, why);

    if (rc)
        fail_msg("%s: %s", text, why);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? "," : "", nodes[i]);
        free(nodes[i]);
    }
    free(nodes);
    assert_string_equal(got, want);
}

static void is_none(const char *text, int rc)
{
    char why[JOB_HOSTS_WHY_BYTES] = "", **nodes;
    uint32_t n;

    assert_int_equal(job_hosts_read(text, &nodes, &n, why), rc);
    assert_null(nodes);
    assert_true(why[0]);
}

static void test_each_node_is_named_once_in_the_order_given(void **state)
{
    (void)state;
    is_list("b,a,c", "b,a,c");
    is_list("b:4,a:4,b:2,c", "b,a,c");
    is_list(" b , a,c ", "b,a,c");
    is_list("a,b,a,a:4,b", "a,b");
    is_list("10.1.2.3,n2.cluster", "10.1.2.3,n2.cluster");
    is_none("", -ENOENT);
    is_none("a,-b", -EINVAL);
    is_none("a,b$c", -EINVAL);
    is_none("a,.b", -EINVAL);
    is_list("n1.x,n1.y,n10,n1a,10.0.0.1,10.0.0.2", "n1.x,n1.y,n10,n1a,10.0.0.1,10.0.0.2");
    is_none("n1.cluster,b,n1", -EINVAL);
    is_none("n1-a,n1.cluster,n1a,n1", -EINVAL);
    is_none("N2,a,n2", -EINVAL);
    is_none("@/nowhere/at/all", -ENOENT);
    is_none("a b", -EINVAL);
    is_none("c,[fd00::7] [fd00::8]", -EINVAL);
}

static void is_refused(const char *text, const char *want)
{
    char why[JOB_HOSTS_WHY_BYTES] = "", **nodes;
    uint32_t n;

    assert_int_equal(job_hosts_read(text, &nodes, &n, why), -EINVAL);
    assert_null(nodes);
    if (!strstr(why, want))
        fail_msg("%s: %s", text, why);
}

static void test_a_list_has_a_name_between_commas(void **state)
{
    (void)state;
    is_refused("a,,b", "there is no name before a comma: a,b,c");
    is_refused(",a", "there is no name before a comma");
    is_refused("a, ,b", "there is no name before a comma");
    is_refused("a,b,", "there is no name behind the last comma");
    is_refused("a,b, ", "there is no name behind the last comma");
    is_refused(",", "there is no name before a comma");
    is_refused("a,#b", "'#b' is no name of a node"); /* comments are for files */
}

/* As mpirun --host has them. 22 are slots, too: a name of ssh's configuration has the port. */
static void test_slots_are_a_number(void **state)
{
    (void)state;
    is_list("a:1,b:22,c:007,a:9999999999", "a,b,c");
    is_refused("a,b:", "'b:' has no number of slots behind its colon: it is n1, or n1:4");
    is_refused("a:x,b", "'a:x' has no number of slots");
    is_refused("a:4x", "'a:4x' has no number of slots");
    is_refused("a:-1", "has no number of slots");
    is_refused("a:0", "'a:0' has no number of slots");
    is_refused("a:00", "has no number of slots");
    is_refused("[fd00::7]:", "'[fd00::7]:' has no number of slots");
    is_refused("[fd00::7]:ssh", "'[fd00::7]:ssh' has no number of slots");
    is_refused("[fd00::7]:0", "has no number of slots");
    is_refused(":4", "'' is no name of a node");
    is_refused("ada@a", "'ada@a' is no name of a node");
}

static void test_addresses_of_ipv6_are_in_brackets(void **state)
{
    (void)state;
    is_list("[fd00::7]", "[fd00::7]");
    is_list("[::1],a", "[::1],a");
    is_list(" [fd00::8]:4 ,a:2,[fd00::7]", "[fd00::8],a,[fd00::7]");
    is_list("[FD00:0::07],[fd00:0:0:0:0:0:0:7]:2,[2001:db8:1::5:6:7:8]", "[fd00::7],[2001:db8:1:0:5:6:7:8]");
    is_list("[1:2:3::5:6:7:8],[1:2:4::5:6:7:8]", "[1:2:3:0:5:6:7:8],[1:2:4:0:5:6:7:8]"); /* longer than they were */
    is_refused("fd00::7", "has brackets: [fd00::7]");
    is_refused("a,fd00::7:4", "has brackets");
    is_refused("a:b:c", "'a:b:c' is no address of IPv6");
    is_refused("[fd00::7,fd00::8]", "'[fd00::7' has no ]");
    is_refused("[fd00::7]x", "'[fd00::7]x' is no name of a node");
    is_refused("[fe80::1],b", "'[fe80::1]' is an address of one link alone");
    is_refused("[fe80::1%eth0]", "'[fe80::1%eth0]' is an address of one link alone");
    is_refused("[fd00::1%eth0]", "has an interface");
    is_refused("[::ffff:10.0.0.1]", "is an address of IPv4");
    is_refused("[::10.0.0.1]", "is an address of IPv4");
    is_refused("[ff02::1]", "is no address of a node");
    is_refused("[::]", "is no address of a node");
    is_refused("[]", "'[]' is no address of IPv6");
    is_refused("[10.0.0.1]", "is no address of IPv6");
}

static void test_a_range_is_no_address(void **state)
{
    (void)state;
    is_refused("node[1-4]", "'node[1-4]' is a range");
    is_refused("a,node[1,3]", "'node[1' is a range");
    is_refused("n[fd00::7]", "'n[fd00::7]' is a range");
    is_refused("[1-4]", "'[1-4]' is no address of IPv6");
}

static void test_plans_have_addresses_as_lists_give_them(void **state)
{
    char longest[] = "[1111:2222:3333:4444:5555:6666:7777:8888]", bare[JOB_ADDRESS_BYTES];

    (void)state;
    assert_true(job_plan_is_node("[fd00::7]") && job_plan_is_node(longest));
    assert_string_equal(job_address_bare(longest, bare), "1111:2222:3333:4444:5555:6666:7777:8888");
    assert_string_equal(job_address_bare("n7", bare), "n7");
    for (const char *const *bad = (const char *const[]){"fd00::7", "[fd00:0::7]", "[FD00::7]", "[fd00::7", "[fe80::1]", "[", "[]", "[]]", "[n1]", "[fd00::7]x", "[[fd00::7]]", NULL}; *bad; bad++)
        assert_false(job_plan_is_node(*bad));
}

static void test_names_are_kept_in_a_file(void **state)
{
    char dir[] = "/tmp/fp-hosts-XXXXXX", path[64], a[] = "n3", b[] = "n1.cluster", c[] = "10.0.0.2", d[] = "[fd00::7]", *names[] = {a, b, c, d}, **got;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_null(job_hosts_load(dir, 4));
    assert_int_equal(job_hosts_write(dir, names, 4), 0);
    got = job_hosts_load(dir, 4);
    assert_non_null(got);
    for (int i = 0; i < 4; i++)
        assert_string_equal(got[i], names[i]);
    job_hosts_free(got, 4);
    assert_null(job_hosts_load(dir, 2)); /* of another run of the job */
    snprintf(path, sizeof path, "%s/nodes", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void expands(const char *text, uint32_t count, const char *want)
{
    char got[512] = "", **nodes;
    uint32_t n;

    assert_int_equal(job_hostlist(text, &nodes, &n), 0);
    assert_int_equal(n, count);
    for (uint32_t i = 0; i < n; i++) {
        if (want)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? "," : "", nodes[i]);
        free(nodes[i]);
    }
    free(nodes);
    if (want)
        assert_string_equal(got, want);
}

/* As scontrol show hostnames prints them. */
static void test_lists_as_slurm_writes_them(void **state)
{
    static const char *const others[] = {"", ",", "n[", "n[1", "n[]", "n[1-]", "n[-1]", "n[2-1]", "n[a-c]", "n[1,]", "n]1", "n[1]]", "a,", "a,,b", "a b", "-a", "n[1-2[3]]", "n[1234567890]", NULL};
    char **nodes = NULL;
    uint32_t n = 7;

    (void)state;
    expands("login1", 1, "login1");
    expands("b,a,n3.cluster", 3, "b,a,n3.cluster");
    expands("n[1-3,7],m[08-11]", 8, "n1,n2,n3,n7,m08,m09,m10,m11");
    expands("q12-[1-2]", 2, "q12-1,q12-2");
    expands("n[098-101],x", 5, "n098,n099,n100,n101,x");
    expands("r[1-2]n[1-2]", 4, "r1n1,r1n2,r2n1,r2n2");
    expands("n[00001-10000]", 10000, NULL);
    for (const char *const *t = others; *t; t++)
        if (job_hostlist(*t, &nodes, &n) != -EINVAL)
            fail_msg("taken: %s", *t);
    assert_int_equal(job_hostlist("n[1-99999][1-99999]", &nodes, &n), -E2BIG);
    assert_int_equal(job_hostlist("n[1-999999999]", &nodes, &n), -E2BIG);
    assert_true(!nodes && n == 7);
}

/* Of these names all, in the short form that gives them again. */
static void is_written(const char *text, size_t size, const char *want)
{
    char out[512], **nodes;
    uint32_t n, *all;

    assert_int_equal(job_hostlist(text, &nodes, &n), 0);
    all = calloc(n, sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        all[i] = i;
    memset(out, 'x', sizeof out);
    assert_string_equal(job_hostlist_write(nodes, all, n, out, size), want);
    assert_int_equal(out[size], 'x');
    free(all);
    job_hosts_free(nodes, n);
}

static void test_lists_are_written_as_slurm_does(void **state)
{
    static const char *const same[] = {"login1", "b,a,n3.cluster", "n[1-3,7],m[08-11]", "q12-[1-2]", "n[098-101],x", "n[9-11]", "n[2,1]", "n[1,3,5],m", "7", "[7-8]", "n[01-02],n1", "n09,n[100-101]",
                                       "n[08,10],n1234567890,n1234567891", NULL};
    char *const nodes[] = {(char *)"n1", (char *)"n2", (char *)"n3", (char *)"n4"};
    char *const six[] = {(char *)"[fd00::7]", (char *)"[fd00::8]"};
    char out[JOB_HOSTLIST_BYTES];

    (void)state;
    for (const char *const *t = same; *t; t++)
        is_written(*t, 300, *t);
    is_written("n[1-10000]", 40, "n[1-10000]");
    is_written("r[1-2]n[1-2]", 40, "r1n[1-2],r2n[1-2]");
    is_written("n[1,3,5,7,9,11,13,15,17,19]", 40, "n[1,3,5,7,9,11] and 4 more");
    is_written("abcdefgh,bcdefghi,cdefghij,defghijk", 40, "abcdefgh and 3 more");
    assert_string_equal(job_hostlist_write(six, (const uint32_t[]){0, 1}, 2, out, sizeof out), "[fd00::7],[fd00::8]");
    assert_string_equal(job_hostlist_write(nodes, (const uint32_t[]){3, 0, 1}, 3, out, sizeof out), "n[4,1-2]");
}

static void test_a_name_is_found_among_many(void **state)
{
    char **nodes = NULL, ***sorted;
    uint32_t n = 0;

    (void)state;
    assert_int_equal(job_hostlist("z,n[1-20000],a", &nodes, &n), 0);
    sorted = job_hosts_sort(nodes, n);
    assert_non_null(sorted);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(job_hosts_find(nodes, sorted, n, nodes[i]), i);
    assert_int_equal(job_hosts_find(nodes, sorted, n, "n20001"), -ENOENT);
    assert_int_equal(job_hosts_find(nodes, sorted, 0, "a"), -ENOENT);
    for (uint32_t i = 0; i < n; i++)
        free(nodes[i]);
    free(nodes);
    free(sorted);
}

static void test_a_file_names_nodes_once_for_each_slot(void **state)
{
    char path[] = "/tmp/test_job_hosts.XXXXXX", text[64];
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");

    (void)state;
    assert_non_null(f);
    fprintf(f, "n3\nn3\n\n# a comment\nn1 slots=4 max_slots=8\n  n2:2\nn3\nn1");
    fclose(f);
    snprintf(text, sizeof text, "@%s", path);
    is_list(text, "n3,n1,n2");
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "fd00::7:4 slots=2\n[FD00::7]:4\nfd00::7 slots=2\n10.0.0.1\n");
    fclose(f);
    is_list(text, "[fd00::7:4],[fd00::7],10.0.0.1");
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "# nothing\n");
    fclose(f);
    is_none(text, -ENOENT);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "n1:8\r\n\r\n\nn2:ssh\r\n");
    fclose(f);
    is_refused(text, "'n2:ssh' has no number of slots");
    f = fopen(path, "w");
    assert_non_null(f);
    fwrite("n1\n\0n2\n", 1, 7, f); /* of which the first alone would be seen */
    fclose(f);
    is_refused(text, "it is no text");
    unlink(path);
    is_none("@", -ENOENT);
}

/* 20,000 nodes of 64 slots, in the order of Torque (slots of a node together) and in turns. */
static void test_many_slots_are_read_soon(void **state)
{
    char path[] = "/tmp/test_job_hosts.XXXXXX", text[64], why[JOB_HOSTS_WHY_BYTES], **nodes;
    FILE *f = fdopen(mkstemp(path), "w");
    uint32_t n;

    (void)state;
    assert_non_null(f);
    for (unsigned slot = 0; slot < 64; slot++)
        for (unsigned i = 0; i < 20000; i++)
            fprintf(f, "node%05u\n", slot % 2 ? i : 19999 - i);
    fclose(f);
    snprintf(text, sizeof text, "@%s", path);
    assert_int_equal(job_hosts_read(text, &nodes, &n, why), 0);
    unlink(path);
    assert_int_equal(n, 20000);
    assert_string_equal(nodes[0], "node19999");
    assert_string_equal(nodes[19999], "node00000");
    for (uint32_t i = 0; i < n; i++)
        free(nodes[i]);
    free(nodes);
}

static bool has_loopback_six(void)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&to, sizeof to) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

static void test_the_way_to_a_node(void **state)
{
    char out[256] = "";

    (void)state;
    assert_int_equal(job_address_towards("127.0.0.1", out, sizeof out), 0);
    assert_string_equal(out, "127.0.0.1");
    if (has_loopback_six()) {
        assert_int_equal(job_address_towards("[::1]", out, sizeof out), 0);
        assert_string_equal(out, "[::1]");
    }
    assert_int_equal(job_address_towards("fe80::1%lo", out, sizeof out), -EADDRNOTAVAIL);
    assert_int_equal(job_address_towards("no-such-host.invalid", out, sizeof out), -ENOENT);
}

static void test_this_machine_is_found(void **state)
{
    char host[256] = "", longer[300];
    char *names[3] = {(char *)"surely-not-this", host, (char *)"127.0.0.1"};

    (void)state;
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    assert_int_equal(job_hosts_self(names, 3), 1);
    host[strcspn(host, ".")] = '\0';
    snprintf(longer, sizeof longer, "%s.some.domain", host);
    names[1] = longer;
    assert_true(job_hosts_same(host, longer));
    names[1] = names[0];
    assert_int_equal(job_hosts_self(names, 3), 2);
    assert_int_equal(job_hosts_self(names, 2), -ENOENT);
    names[2] = (char *)"[::1]";
    assert_int_equal(job_hosts_self(names, 3), has_loopback_six() ? 2 : -ENOENT);
    assert_false(job_hosts_same("[fd00::7]", "[fd00::8]"));
    assert_false(job_hosts_same("a.x", "a.y"));
    assert_false(job_hosts_same("a1", "a"));
    assert_false(job_hosts_same("10.1.2.3", "10"));
    assert_true(job_hosts_same("Node7", "node7"));
}

static void test_a_plan_goes_by_the_environment_and_is_wiped(void **state)
{
    size_t size = 300001;
    char *text = malloc(size), *got, name[32];

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i + 1 < size; i++)
        text[i] = (char)(' ' + i % 90);
    for (size_t len = size - 1; len + 4 > size; len--) { /* all lengths of the last piece */
        text[len] = '\0';
        assert_int_equal(job_plan_to_environment(text), 0);
        got = job_plan_from_environment();
        assert_non_null(got);
        assert_string_equal(got, text);
        free(got);
        for (unsigned i = 0; i < JOB_PLAN_PIECES; i++) {
            job_plan_variable(i, name);
            assert_null(getenv(name));
        }
    }
    free(text);
    assert_null(job_plan_from_environment());
    job_plan_variable(0, name);
    for (const char *const *bad = (const char *const[]){"", "a", "abc", "====", "*&^%", NULL}; *bad; bad++) {
        setenv(name, *bad, 1);
        got = job_plan_from_environment();
        if (got)
            assert_int_equal(strlen(got), 0);
        free(got);
        assert_null(getenv(name));
    }
}

static void test_a_plan_that_is_too_long_is_refused(void **state)
{
    size_t size = (size_t)JOB_PLAN_PIECES * 73728 + 2;
    char *text = malloc(size), name[32];

    (void)state;
    assert_non_null(text);
    memset(text, 'x', size - 1);
    text[size - 1] = '\0';
    assert_int_equal(job_plan_to_environment(text), -E2BIG);
    job_plan_variable(0, name);
    assert_null(getenv(name));
    free(text);
}

static void test_variables_of_directives_are_taken_along(void **state)
{
    char **list;
    uint32_t n;

    (void)state;
    setenv("TMPDIR", "/t", 1);
    unsetenv("SLURM_RESTART_COUNT");
    setenv("ONE", "1 $TWO", 1);
    setenv("TWO", "2", 1);
    setenv("SECRET", "s", 1);
    unsetenv("UNSET");
    job_variables_of("#!/bin/bash\n#FP store ssd=$ONE/${TWO}x mount=$UNSET$ONE\necho $SECRET\n#FP stage-in $\n#FP cores 1 $TMPDIR", &list, &n);
    assert_int_equal(n, 3);
    assert_string_equal(list[0], "TMPDIR=/t");
    assert_string_equal(list[1], "ONE=1 $TWO");
    assert_string_equal(list[2], "TWO=2");
    for (uint32_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

static void test_words_of_a_shell(void **state)
{
    char out[32];

    (void)state;
    assert_int_equal(fp_shell_word("a b", out, sizeof out), 0);
    assert_string_equal(out, "'a b'");
    assert_int_equal(fp_shell_word("it's $x", out, sizeof out), 0);
    assert_string_equal(out, "'it'\\''s $x'");
    assert_int_equal(fp_shell_word("", out, 3), 0);
    assert_string_equal(out, "''");
    assert_int_equal(fp_shell_word("a", out, 3), -ENAMETOOLONG);
    assert_int_equal(fp_shell_word("0123456789012345678901234567890123", out, sizeof out), -ENAMETOOLONG);
}

static void test_ssh_is_told_no_key_and_takes_no_option_for_a_host(void **state)
{
    static struct job_words w;

    (void)state;
    assert_int_equal(job_launcher_ssh("n7", 7, "/opt/it's/fp-job", &w), 0);
    assert_string_equal(w.argv[0], "ssh");
    assert_string_equal(w.argv[w.n - 2], "n7");
    assert_string_equal(w.argv[w.n - 1], "'/opt/it'\\''s/fp-job' node --rank=7");
    assert_null(w.argv[w.n]);
    assert_int_equal(job_launcher_ssh("[fd00::7]", 7, "/opt/fp-job", &w), 0);
    assert_string_equal(w.argv[w.n - 2], "fd00::7");
    assert_false(job_plan_is_node("-oProxyCommand=x"));
    assert_null(job_launcher_named("rsh"));
    assert_true(job_launcher_named("srun")->kept && !job_launcher_named("ssh")->kept && !job_launcher_named("mpirun")->kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_node_is_named_once_in_the_order_given),
        cmocka_unit_test(test_a_list_has_a_name_between_commas),
        cmocka_unit_test(test_slots_are_a_number),
        cmocka_unit_test(test_addresses_of_ipv6_are_in_brackets),
        cmocka_unit_test(test_a_range_is_no_address),
        cmocka_unit_test(test_plans_have_addresses_as_lists_give_them),
        cmocka_unit_test(test_names_are_kept_in_a_file),
        cmocka_unit_test(test_lists_as_slurm_writes_them),
        cmocka_unit_test(test_lists_are_written_as_slurm_does),
        cmocka_unit_test(test_a_name_is_found_among_many),
        cmocka_unit_test(test_a_file_names_nodes_once_for_each_slot),
        cmocka_unit_test(test_many_slots_are_read_soon),
        cmocka_unit_test(test_the_way_to_a_node),
        cmocka_unit_test(test_this_machine_is_found),
        cmocka_unit_test(test_a_plan_goes_by_the_environment_and_is_wiped),
        cmocka_unit_test(test_a_plan_that_is_too_long_is_refused),
        cmocka_unit_test(test_variables_of_directives_are_taken_along),
        cmocka_unit_test(test_words_of_a_shell),
        cmocka_unit_test(test_ssh_is_told_no_key_and_takes_no_option_for_a_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
