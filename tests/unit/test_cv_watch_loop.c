/* What the coordinator does as a store changes under it, in a directory that stands for one: attributes are this program's, and so is the clock. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cmocka.h>

#include "convert/watch/watch.c"
#include "fp/rmtree.h"

#define RANK "run/dump_1/rank_0"

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size);
int __wrap_setxattr(const char *path, const char *name, const void *value, size_t size, int flags);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_removexattr(const char *path, const char *name);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
struct dirent *__real_readdir64(DIR *dir);
struct dirent *__wrap_readdir64(DIR *dir);
int __real_stat64(const char *path, struct stat *st);
int __wrap_stat64(const char *path, struct stat *st);
int __real_lstat64(const char *path, struct stat *st);
int __wrap_lstat64(const char *path, struct stat *st);

static char top[64];
static const struct cw_options options = {.mount = top, .node = "me", .pattern = "run/dump_*/rank_*", .ending = ".h5", .workers = 1};
static struct watch w;
static const char *set;       /* what user.fp.set says of all that is in a directory of a set */
static unsigned asked, go_at; /* how often it was; with which time the file goes */
static enum call { NONE, GETXATTR, OPENDIR, READDIR, STAT, LSTAT } failing; /* with this errno */
static int failure;
static const char *failing_at; /* of what has a path that ends so; NULL: of all */
static const char *failing_name; /* of this attribute; NULL: of all */
static bool owned;            /* another node says that it has closed all files */
static char mark_text[64], mark_of[CV_OF_MAX]; /* of all that is there; "": none */
static unsigned marked;       /* how often it was */
static unsigned unmarked;     /* how often a file was */
static unsigned opened;       /* how often a directory was */
static uint64_t paused_ms;    /* in which nothing was asked */
static uint64_t clock_ms, cost_ms; /* of an attribute that is asked for */

static void path_of(const char *path, char name[PATH_MAX])
{
    snprintf(name, PATH_MAX, "%s/%s", top, path);
}

static void put(const char *path)
{
    char name[PATH_MAX];
    FILE *f;

    path_of(path, name);
    for (char *slash = name + strlen(top) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        (void)mkdir(name, 0777);
    }
    f = fopen(name, "w");
    assert_non_null(f);
    fclose(f);
}

static void go(const char *path)
{
    char name[PATH_MAX];

    path_of(path, name);
    assert_int_equal(unlink(name), 0);
}

static bool fails(enum call one)
{
    if (one == failing)
        errno = failure;
    return one == failing;
}

DIR *__wrap_opendir(const char *path)
{
    opened++;
    return fails(OPENDIR) ? NULL : __real_opendir(path);
}

struct dirent *__wrap_readdir64(DIR *dir)
{
    return fails(READDIR) ? NULL : __real_readdir64(dir);
}

int __wrap_stat64(const char *path, struct stat *st)
{
    return fails(STAT) ? -1 : __real_stat64(path, st);
}

int __wrap_lstat64(const char *path, struct stat *st)
{
    return fails(LSTAT) ? -1 : __real_lstat64(path, st);
}

static const char *value_of(const char *path, const char *name)
{
    if (strcmp(name, "user.fp.set") == 0 && strstr(path, "/dump_")) {
        if (++asked == go_at)
            go(RANK);
        return set;
    }
    if (strcmp(name, CW_NODE) == 0) { /* which will convert it: nothing is begun here */
        static char owner[64];
        struct stat st = {0};

        (void)__real_stat64(path, &st);
        snprintf(owner, sizeof owner, "%s %lld", owned ? "another" : "", (long long)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
        return owner;
    }
    if (strcmp(name, "user.fp.converted") == 0)
        return strstr(path, ".h5") ? "it" : NULL;
    if (strcmp(name, CW_MARK) == 0)
        return mark_text[0] ? mark_text : NULL;
    if (strcmp(name, CW_OF) == 0)
        return mark_of[0] ? mark_of : NULL;
    return NULL;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    *t = (struct timespec){.tv_sec = (time_t)(clock_ms / 1000), .tv_nsec = (long)(clock_ms % 1000) * 1000000};
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    assert_true(n == 1 && fds->fd == 0); /* nothing is said */
    clock_ms += (uint64_t)timeout_ms;
    paused_ms += (uint64_t)timeout_ms;
    return 0;
}

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size)
{
    const char *text;

    clock_ms += cost_ms;
    if ((!failing_name || strcmp(name, failing_name) == 0) && (!failing_at || (strlen(path) > strlen(failing_at) && strcmp(path + strlen(path) - strlen(failing_at), failing_at) == 0)) && fails(GETXATTR))
        return -1;
    text = value_of(path, name);
    if (!text) {
        errno = ENODATA;
        return -1;
    }
    assert_true(strlen(text) <= size);
    memcpy(value, text, strlen(text));
    return (ssize_t)strlen(text);
}

int __wrap_setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    (void)path, (void)value, (void)size, (void)flags;
    marked += strcmp(name, CW_MARK) == 0;
    return 0;
}

int __wrap_removexattr(const char *path, const char *name)
{
    unmarked += strstr(path, "/rank_") && strcmp(name, CW_MARK) == 0;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    strcpy(top, "/tmp/cv-watch-XXXXXX");
    w = (struct watch){.o = &options, .store.mount = top, .waiting = -1, .running = -1};
    set = "open run/dump_# 1";
    owned = true;
    mark_text[0] = mark_of[0] = '\0';
    marked = unmarked = opened = 0;
    asked = go_at = 0;
    failing = NONE;
    failing_at = failing_name = NULL;
    failure = EIO;
    clock_ms = 1000000;
    paused_ms = 0;
    cost_ms = 0;
    return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    cw_groups_free(&w.groups);
    return fp_remove_tree(top);
}

/* All groups that wait, though they were to rest. */
static void attend_now(void)
{
    for (size_t i = 0; i < w.groups.count; i++)
        w.groups.items[i].next_ms = 0;
    attend_all(&w);
}

static void test_a_dump_goes_at_any_time(void **state)
{
    unsigned times = 0;
    bool gone;
    (void)state;

    do {
        put(RANK);
        set = "open run/dump_# 1";
        go_at = 0;
        cw_look_at_all(&w);
        assert_int_equal(w.groups.count, 1);
        set = "complete run/dump_# 1";
        asked = 0;
        go_at = ++times;
        for (int i = 0; i < 3; i++)
            attend_now();
        gone = asked >= go_at;
        go_at = 0;
        attend_now(); /* it may have gone when it had been looked for */
        assert_int_equal(w.groups.count, !gone);
        assert_int_equal(w.groups.nfiles, !gone);
    } while (gone);
    assert_true(times > 5);
}

static void test_a_group_without_files_is_forgotten(void **state)
{
    (void)state;
    put(RANK);
    cw_look_at_all(&w);
    go(RANK);
    assert_int_equal(w.groups.count, 1);
    assert_false(still_there(&w, &w.groups.items[0]));
    attend_now();
    assert_int_equal(w.groups.count, 0);
}

static void test_a_look_that_could_not_tell_all_is_repeated_later_and_later(void **state)
{
    static const struct cw_options literal = {.mount = top, .node = "me", .pattern = "run/dump_*/rank_0", .ending = ".h5", .workers = 1};
    (void)state;

    put(RANK);
    for (enum call one = GETXATTR; one <= LSTAT; one++) {
        uint64_t last = CW_LOOK_MS;

        w.o = one == LSTAT ? &literal : &options; /* which asks for a name instead of reading a directory */
        failing = one;
        for (int i = 0; i < 10; i++) {
            cw_look_at_all(&w);
            assert_true(w.look && w.look_rest_ms >= last && w.look_rest_ms <= REST_MAX_MS);
            last = w.look_rest_ms;
        }
        assert_int_equal(last, REST_MAX_MS);
        assert_int_equal(w.groups.count, 0);
        failing = NONE;
        cw_look_at_all(&w);
        assert_false(w.look);
        assert_true(w.look_rest_ms < CW_LOOK_MS);
        assert_int_equal(w.groups.count, 1);
        cw_groups_drop(&w.groups, &w.groups.items[0]);
    }
}

static void test_what_nobody_may_read_is_not_looked_for_again(void **state)
{
    (void)state;
    put(RANK);
    failure = EACCES;
    for (failing = GETXATTR; failing <= LSTAT; failing++) {
        cw_look_at_all(&w);
        assert_false(w.look);
    }
}

static void test_a_dump_of_which_nothing_can_be_told_now_is_kept(void **state)
{
    (void)state;
    put(RANK);
    cw_look_at_all(&w);
    for (failing = GETXATTR; failing <= LSTAT; failing++) {
        attend_now();
        assert_int_equal(w.groups.count, 1);
    }
    failing = STAT;
    assert_true(still_there(&w, &w.groups.items[0]));
}

/* Without the files of other nodes it would be converted in part. */
static void test_a_set_waits_until_all_its_files_can_be_looked_for(void **state)
{
    struct cw_group *g;
    (void)state;

    put(RANK);
    cw_look_at_all(&w);
    put("run/dump_1/rank_1");
    set = "complete run/dump_# 1";
    failing = READDIR;
    attend_now();
    g = cw_groups_find(&w.groups, "run/dump_# 1");
    assert_int_equal(g->complete_ms, 0);
    assert_int_equal(g->nfiles, 1);
    failing = NONE;
    attend_now();
    assert_true(g->complete_ms != 0);
    assert_int_equal(g->nfiles, 2);
}

/* Two files, and what another node says of them as they are. */
static struct cw_group *put_marked(const char *word)
{
    struct cw_group *g;

    w.there = true;
    put(RANK);
    put("run/dump_1/rank_1");
    set = "complete run/dump_# 1";
    cw_look_at_all(&w);
    g = cw_groups_find(&w.groups, "run/dump_# 1");
    assert_non_null(g);
    strcpy(mark_text, word);
    snprintf(mark_of, sizeof mark_of, "%016" PRIx64, cw_group_stamp(g));
    return g;
}

static void put_later(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char name[PATH_MAX];

    path_of(path, name);
    assert_int_equal(utimensat(AT_FDCWD, name, times, 0), 0);
}

/* The plugin may say that a file was closed when it is converted already. */
static void test_what_is_heard_late_takes_back_no_mark(void **state)
{
    static const char *const words[] = {"done run/dump_1.h5", "failed why", "running another 5%"};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        struct cw_group *g = put_marked(words[i]);

        hear(&w, "file 7 " RANK);
        hear(&w, "file 9 run/dump_1/rank_1");
        assert_int_equal(marked, 0);
        attend_now();
        assert_int_equal(g->phase, i == 0 ? CW_DONE : CW_WAITING);
        cw_groups_drop(&w.groups, g);
        hear(&w, "file 7 " RANK); /* and if it is known by that alone */
        assert_int_equal(marked, 0);
        cw_groups_drop(&w.groups, cw_groups_find(&w.groups, "run/dump_# 1"));
    }
}

static void test_what_is_written_anew_is_marked_once(void **state)
{
    (void)state;
    (void)put_marked("done run/dump_1.h5");
    attend_now();
    hear(&w, "file 7 " RANK);
    assert_int_equal(marked, 0);
    put_later(RANK);
    hear(&w, "file 8 " RANK);
    assert_int_equal(marked, 1);
    put_later("run/dump_1/rank_1");
    hear(&w, "file 12 run/dump_1/rank_1");
    assert_int_equal(marked, 1);
    assert_int_equal(cw_groups_find(&w.groups, "run/dump_# 1")->phase, CW_WAITING);
}

/* As cp -p does. */
static void test_what_is_written_anew_with_the_time_that_it_had_is_marked(void **state)
{
    struct cw_group *g = put_marked("done run/dump_1.h5");
    (void)state;

    attend_now();
    hear(&w, "file 7 " RANK);
    hear(&w, "file 7 " RANK); /* nothing has changed */
    assert_int_equal(marked, 0);
    hear(&w, "file 8 " RANK);
    assert_int_equal(marked, 1);
    assert_int_equal(g->phase, CW_WAITING);
}

/* Who had it has ended, or has made it of other files. */
static void test_what_another_node_has_left_is_marked_again(void **state)
{
    (void)state;
    (void)put_marked("running another 5%");
    hear(&w, "file 7 " RANK);
    attend_now();
    assert_int_equal(marked, 0);
    strcpy(mark_text, "done run/dump_1.h5");
    strcpy(mark_of, "0000000000000001");
    attend_now();
    assert_int_equal(marked, 1);
}

/* They came when nobody knew yet that they are of one, and each by itself could not be converted. */
static void test_marks_of_files_go_when_their_set_is_converted(void **state)
{
    static char result[] = "run/dump_1.h5";
    struct cw_worker worker = {.result = result, .action.what = CW_CONVERT};
    (void)state;

    put(RANK);
    put("run/dump_1/rank_1");
    set = NULL;
    cw_look_at_all(&w);
    assert_int_equal(w.groups.count, 2);
    for (size_t i = 0; i < 2; i++)
        w.groups.items[i].phase = CW_FAILED;
    set = "complete run/dump_# 1";
    cw_look_at_all(&w);
    assert_int_equal(w.groups.count, 3);
    cw_groups_find(&w.groups, "run/dump_# 1")->phase = CW_DONE;
    done(&w, cw_groups_find(&w.groups, "run/dump_# 1"), &worker);
    assert_int_equal(unmarked, 2);
    assert_int_equal(marked, 1); /* the directory */
    assert_int_equal(w.groups.count, 1);
    assert_int_equal(w.groups.items[0].phase, CW_DONE);
}

/* As a mount with another schema, or into another directory, may do it. */
static void test_what_has_failed_elsewhere_is_tried_here_if_it_is_declared_otherwise(void **state)
{
    static const struct cw_options elsewhere = {.mount = top, .node = "me", .pattern = "run/dump_*/rank_*", .into = "h5", .ending = ".h5", .workers = 1};
    struct cw_group *g = put_marked("failed why");
    char stamp[CW_STAMP_BYTES];
    (void)state;

    strcpy(stamp, mark_of);
    assert_true(another_has_failed(&w, g));
    snprintf(mark_of, sizeof mark_of, "%s %016" PRIx64, stamp, declared(&elsewhere));
    assert_false(another_has_failed(&w, g));
    w.o = &elsewhere;
    assert_true(another_has_failed(&w, g));
    mark_of[0] ^= 1; /* of other files */
    assert_false(another_has_failed(&w, g));
}

/* It waited by itself; then it is known which set it is of. All files are looked at once for that, not for ever. */
static void test_a_file_that_has_become_one_of_a_set_waits_with_that_alone(void **state)
{
    (void)state;
    put(RANK);
    set = NULL;
    cw_look_at_all(&w);
    assert_non_null(cw_groups_find(&w.groups, "/" RANK));
    set = "open run/dump_# 1";
    attend_now();
    assert_int_equal(w.groups.count, 0);
    assert_int_equal(w.groups.nfiles, 0);
    assert_true(w.look);
    cw_look_at_all(&w);
    attend_now();
    attend_now();
    assert_false(w.look);
    assert_int_equal(w.groups.count, 1);
    assert_non_null(cw_groups_find(&w.groups, "run/dump_# 1"));
}

/* Which directory is the set can't be told: it is not taken for none, which marks would go past, and results lie elsewhere by. */
static void test_a_set_whose_directory_can_not_be_told_now_waits(void **state)
{
    static char result[] = "run/dump_1.h5";
    struct cw_worker worker = {.result = result, .action.what = CW_CONVERT};
    struct cw_group *g = put_marked("waiting me");
    (void)state;

    failing = GETXATTR;
    failing_at = "/run/dump_1"; /* of the files it can */
    attend_now();
    assert_int_equal(g->phase, CW_WAITING);
    assert_true(g->next_ms >= clock_ms + CW_LOOK_MS);
    assert_true(cw_mark(&w.store, g, "waiting me") < 0);
    assert_false(g->told);
    g->phase = CW_DONE;
    done(&w, g, &worker);
    assert_int_equal(g->phase, CW_WAITING);
    failed(&w, g, "of nothing");
    assert_int_equal(g->phase, CW_WAITING);
    assert_int_equal(marked, 0);
    failing = NONE;
    failed(&w, g, "of nothing");
    assert_int_equal(g->phase, CW_FAILED);
    assert_int_equal(marked, 1);
}

/* It is said of each, since we have set its attribute: thousands of files would be looked at after each of thousands of conversions. */
static void test_a_result_that_is_complete_is_no_reason_to_look(void **state)
{
    (void)state;
    complete(&w, "run/dump_1.h5");
    assert_false(w.look);
    complete(&w, "run/dump_1");
    assert_true(w.look);
}

static void test_a_directory_is_swept_once_unless_something_may_be_left(void **state)
{
    struct cw_group *g = put_marked("waiting me");
    (void)state;

    opened = 0;
    sweep(&w, g, "run/dump_1.h5");
    sweep(&w, g, "run/dump_2.h5");
    assert_int_equal(opened, 1);
    strcpy(mark_text, "running me 5%"); /* by one that was killed */
    sweep(&w, g, "run/dump_1.h5");
    assert_int_equal(opened, 2);
    strcpy(mark_text, "waiting me");
    put("run/.fp-convert-abcdefghij"); /* somebody writes it */
    clock_ms += SWEPT_MS;
    sweep(&w, g, "run/dump_1.h5");
    sweep(&w, g, "run/dump_1.h5");
    assert_int_equal(opened, 4);
}

static const struct cw_options no_dumps = {.mount = top, .node = "me", .pattern = "run/dump_*/rank_*", .ending = ".h5", .workers = 1, .keep_none = true};

static void put_bytes(const char *path)
{
    char name[PATH_MAX];
    FILE *f;

    put(path);
    path_of(path, name);
    f = fopen(name, "w");
    assert_non_null(f);
    fputs("bytes", f);
    fclose(f);
}

static bool is_there(const char *path)
{
    char name[PATH_MAX];

    path_of(path, name);
    return access(name, F_OK) == 0;
}

static struct cw_group *looked_at(void)
{
    cw_look_at_all(&w);
    return cw_groups_find(&w.groups, "run/dump_# 1");
}

static int is_taken(const struct cw_options *o)
{
    char why[CW_MARK_MAX];

    return cw_result_is_taken(&w.store, o, cw_groups_find(&w.groups, "run/dump_# 1"), "run/dump_1", "run/dump_1.h5", why, sizeof why);
}

/* Its dump was complete without it, and is in the result alone. */
static void test_a_rank_that_is_late_replaces_no_result_of_files_that_were_removed(void **state)
{
    static const char *const ranks[] = {RANK, "run/dump_1/rank_1", "run/dump_1/rank_2"};
    (void)state;

    for (size_t i = 0; i < 3; i++)
        put(ranks[i]);
    put_bytes("run/dump_1.h5");
    cw_result_of(looked_at(), 7, "run/dump_1", mark_of);
    assert_false(is_taken(&no_dumps)); /* the same dump, written anew */
    for (size_t i = 0; i < 3; i++)
        go(ranks[i]);
    cw_groups_drop(&w.groups, &w.groups.items[0]);
    for (int i = 3; i < 7; i++) { /* more than there were */
        char late[32];

        snprintf(late, sizeof late, "run/dump_1/rank_%d", i);
        put(late);
        (void)looked_at();
        assert_true(is_taken(&no_dumps));
        assert_false(is_taken(&options)); /* who removed the dump knew it */
    }
    for (size_t i = 0; i < 3; i++)
        put(ranks[i]);
    (void)looked_at();
    assert_false(is_taken(&no_dumps));
}

/* A result that can't be asked whose it is, is nobody else's for that; a file that can't be asked whether it is a result, is looked at again. */
static void test_what_can_not_be_told_of_a_result_now_is_asked_again(void **state)
{
    (void)state;
    put(RANK);
    put("run/dump_1.h5");
    (void)looked_at();
    failing = GETXATTR;
    failing_name = CW_OF;
    assert_int_equal(is_taken(&options), -EIO);
    failing = NONE;
    assert_int_equal(is_taken(&options), 1); /* nothing says what it is of */
    failing = STAT;
    assert_int_equal(is_taken(&options), -EIO);
    cw_groups_drop(&w.groups, &w.groups.items[0]);
    failing = GETXATTR;
    failing_name = "user.fp.converted";
    assert_null(looked_at());
    assert_true(w.look);
    w.look = w.owed = false;
    w.there = true;
    hear(&w, "file 7 " RANK);
    assert_int_equal(w.groups.count, 0);
    assert_true(w.look && w.owed);
    failing = NONE;
    assert_non_null(looked_at());
    assert_false(w.look);
    not_removed(&w, looked_at(), "run/dump_1.h5", -EWOULDBLOCK);
    assert_int_equal(looked_at()->phase, CW_WAITING);
    not_removed(&w, looked_at(), "run/dump_1.h5", -EACCES); /* that does not pass */
    assert_int_equal(looked_at()->phase, CW_FAILED);
}

static void test_a_dump_of_which_a_file_came_meanwhile_is_not_removed(void **state)
{
    struct cw_group *g;
    (void)state;

    w.o = &no_dumps;
    set = "complete run/dump_# 1";
    put(RANK);
    put_bytes("run/dump_1.h5");
    g = looked_at();
    g->phase = CW_DONE;
    g->stamp = cw_group_stamp(g);
    cw_result_of(g, g->stamp, "run/dump_1", mark_of);
    put("run/dump_1/rank_1"); /* by another node */
    remove_dump(&w, g, "run/dump_1.h5");
    assert_true(is_there(RANK) && is_there("run/dump_1/rank_1"));
    g = cw_groups_find(&w.groups, "run/dump_# 1");
    assert_int_equal(g->nfiles, 2);
    assert_int_equal(g->phase, CW_WAITING);
    g->phase = CW_DONE;
    g->stamp = cw_group_stamp(g);
    cw_result_of(g, g->stamp, "run/dump_1", mark_of);
    failing = READDIR; /* whether there is one can't be told */
    remove_dump(&w, g, "run/dump_1.h5");
    assert_true(is_there(RANK) && is_there("run/dump_1/rank_1"));
    failing = NONE;
    remove_dump(&w, cw_groups_find(&w.groups, "run/dump_# 1"), "run/dump_1.h5");
    assert_false(is_there(RANK) || is_there("run/dump_1/rank_1"));
}

#define MANY 400

/* Each a group of its own, for another node to convert. */
static void put_many(void)
{
    static const struct cw_options singles = {.mount = top, .node = "me", .pattern = "run/one_*", .ending = ".h5", .workers = 1};
    char name[32];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "run/one_%d", i);
        put(name);
    }
    w.o = &singles;
    cw_look_at_all(&w);
    assert_int_equal(w.groups.count, MANY);
    cost_ms = 1;
}

static void test_a_pass_ends_in_time_and_all_have_their_turn(void **state)
{
    unsigned passes = 0, attended = 0;
    (void)state;

    put_many();
    do {
        uint64_t began = clock_ms;

        attend_now(); /* all are due, each time */
        assert_true(clock_ms - began < PASS_MS + 2 * GROUP_MS);
        assert_int_equal(pause_ms(&w), w.cut ? (int)CW_PAUSE_MS : TICK_MS); /* the mount is left alone */
        passes++;
        attended = 0;
        for (size_t i = 0; i < w.groups.count; i++)
            attended += w.groups.items[i].complete_ms != 0;
        assert_true(passes < MANY);
    } while (attended < MANY);
    assert_true(passes > 5);
}

static void test_groups_rest_for_what_all_of_them_take(void **state)
{
    uint64_t began, busy = 0;
    (void)state;

    put_many();
    began = clock_ms;
    while (clock_ms - began < CW_TAKE_MS - 2000) {
        uint64_t pass = clock_ms;

        attend_all(&w);
        busy += clock_ms - pass;
        clock_ms += (uint64_t)pause_ms(&w);
        clock_ms += w.cut; /* poll itself */
    }
    assert_true(busy > 1000 && busy < CW_TAKE_MS / 3);
    complete(&w, "run/dump_1"); /* of a set: these are of none */
    assert_true(cw_groups_find(&w.groups, "/run/one_0")->next_ms != 0);
}

/* While a call is under way nobody can unmount. */
static void test_a_look_at_many_files_leaves_the_mount_alone_most_of_the_time(void **state)
{
    uint64_t began, busy;
    (void)state;

    put_many();
    w.store.breath = &w.breath;
    cw_breath_begin(&w.breath, false);
    began = clock_ms;
    cw_look_at_all(&w);
    busy = clock_ms - began - paused_ms;
    assert_true(busy >= MANY && paused_ms > 4 * busy);
    assert_true(w.look_rest_ms <= REST_TIMES * busy); /* it need not rest for pauses */
    paused_ms = 0;
    w.there = true;
    hear(&w, "look"); /* what was closed is waiting for it */
    cw_look_at_all(&w);
    assert_int_equal(paused_ms, 0);
    cw_breath_begin(&w.breath, false);
    for (size_t i = 0; i < w.groups.count; i++)
        w.groups.items[i].next_ms = 0;
    paused_ms = 0;
    attend_all(&w);
    assert_true(paused_ms > PASS_MS / 2);
}

/* A dump that is about to be converted does not wait for that. */
static void test_a_set_that_is_complete_is_looked_at_without_pauses(void **state)
{
    char name[32];
    (void)state;

    put(RANK);
    cw_look_at_all(&w);
    for (int i = 1; i < MANY; i++) {
        snprintf(name, sizeof name, "run/dump_1/rank_%d", i);
        put(name);
    }
    set = "complete run/dump_# 1";
    cost_ms = 1;
    w.store.breath = &w.breath;
    cw_breath_begin(&w.breath, false);
    attend_now();
    assert_int_equal(w.groups.nfiles, MANY);
    assert_int_equal(paused_ms, 0);
    assert_false(w.breath.hurry);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_look_at_many_files_leaves_the_mount_alone_most_of_the_time),
        T(a_set_that_is_complete_is_looked_at_without_pauses),
        T(what_is_heard_late_takes_back_no_mark),
        T(what_is_written_anew_is_marked_once),
        T(what_is_written_anew_with_the_time_that_it_had_is_marked),
        T(what_another_node_has_left_is_marked_again),
        T(a_result_that_is_complete_is_no_reason_to_look),
        T(a_rank_that_is_late_replaces_no_result_of_files_that_were_removed),
        T(what_can_not_be_told_of_a_result_now_is_asked_again),
        T(marks_of_files_go_when_their_set_is_converted),
        T(a_file_that_has_become_one_of_a_set_waits_with_that_alone),
        T(what_has_failed_elsewhere_is_tried_here_if_it_is_declared_otherwise),
        T(a_set_whose_directory_can_not_be_told_now_waits),
        T(a_dump_of_which_a_file_came_meanwhile_is_not_removed),
        T(a_directory_is_swept_once_unless_something_may_be_left),
        T(a_dump_goes_at_any_time),
        T(a_group_without_files_is_forgotten),
        T(a_look_that_could_not_tell_all_is_repeated_later_and_later),
        T(what_nobody_may_read_is_not_looked_for_again),
        T(a_dump_of_which_nothing_can_be_told_now_is_kept),
        T(a_set_waits_until_all_its_files_can_be_looked_for),
        T(a_pass_ends_in_time_and_all_have_their_turn),
        T(groups_rest_for_what_all_of_them_take),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
