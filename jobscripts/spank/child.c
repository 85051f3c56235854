/*
 * Programs run with a limit from inside of Slurm's (see spank_fp.h). One thread calls; signals and other children of the process are left alone.
 *
 * Not common/command.c, which is for programs of ours: what is loaded into slurmd's processes must not bring libraries with it. A child that does not
 * die of SIGKILL, since the kernel waits for something in its name, is left behind: who waits for it would take part in its misery.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jobscripts/spank/hold.h"
#include "jobscripts/spank/spank_fp.h"

#define AFTER_KILL_MS 1000u
#define END_MS        1000u

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* True: it has ended. */
static bool ended_by(pid_t pid, uint64_t until_ms, int *status)
{
    static const struct timespec pause = {0, 5000000};

    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);

        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        if (now_ms() >= until_ms)
            return false;
        nanosleep(&pause, NULL);
    }
}

static int wait_for(pid_t pid, uint64_t limit_ms)
{
    int status = 0;

    if (!ended_by(pid, now_ms() + limit_ms, &status)) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        (void)ended_by(pid, now_ms() + AFTER_KILL_MS, &status);
        return -ETIMEDOUT;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

static void reset_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL);
}

/* input: it has ours; else /dev/null. */
static _Noreturn void become(char *const argv[], char *const envp[], bool input)
{
    int null = input ? -1 : open("/dev/null", O_RDWR);

    setpgid(0, 0);
    reset_signals();
    if (null > STDIN_FILENO) { /* slurmstepd's own is closed in prologs, and this one is it then */
        (void)dup2(null, STDIN_FILENO);
        close(null);
    }
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    execve(argv[0], argv, envp);
    _exit(127);
}

int spank_fp_run(char *const argv[], char *const envp[], bool input, uint64_t limit_ms)
{
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0)
        become(argv, envp, input);
    return wait_for(pid, limit_ms);
}

int spank_fp_ask(int (*ask)(const void *arg, uint32_t *out), const void *arg, uint64_t limit_ms, uint32_t *out)
{
    struct {
        int rc;
        uint32_t value;
    } answer = {0};
    int fds[2], rc;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        reset_signals();
        answer.rc = ask(arg, &answer.value);
        _exit(write(fds[1], &answer, sizeof answer) == (ssize_t)sizeof answer ? 0 : 1);
    }
    rc = pid < 0 ? -errno : wait_for(pid, limit_ms);
    close(fds[1]);
    if (rc == 0)
        rc = read(fds[0], &answer, sizeof answer) == (ssize_t)sizeof answer ? answer.rc : -EIO;
    close(fds[0]);
    *out = rc ? 0 : answer.value;
    return rc > 0 ? -EIO : rc;
}

/* ---------------------------------------------------------------- as another user */

struct call {
    uid_t uid;
    uint32_t cores; /* FPSTORE_CORE_SPEC */
    const struct spank_hold *hold;
    char *const *argv;
};

/* Never returns with a privilege left. */
static bool drop_to(const struct passwd *p)
{
    if (initgroups(p->pw_name, p->pw_gid) || setresgid(p->pw_gid, p->pw_gid, p->pw_gid) || setresuid(p->pw_uid, p->pw_uid, p->pw_uid))
        return false;
    return geteuid() == p->pw_uid && (p->pw_uid == 0 || setuid(0) < 0) && chdir("/") == 0;
}

/* In the child: name services of a site may take long to say who a user is, and that is within the limit, too. */
static void become_user(void *arg)
{
    const struct call *c = arg;
    char buf[16384], home[PATH_MAX + 8], user[300], cores[48], conf[PATH_MAX + 16];
    const char *where = getenv("SLURM_CONF");
    char *envp[] = {(char *)"PATH=/usr/local/bin:/usr/bin:/bin", (char *)"LC_ALL=C.UTF-8", home, user, cores, where ? conf : NULL, NULL};
    struct passwd p, *found = NULL;

    setpgid(0, 0);
    if ((c->hold && spank_hold_enter(c->hold)) || getpwuid_r(c->uid, &p, buf, sizeof buf, &found) || !found)
        _exit(125);
    snprintf(home, sizeof home, "HOME=%s", p.pw_dir);
    snprintf(user, sizeof user, "USER=%s", p.pw_name);
    snprintf(cores, sizeof cores, SPANK_CORE_SPEC "=%u", (unsigned)c->cores);
    snprintf(conf, sizeof conf, "SLURM_CONF=%s", where ? where : "");
    if (!drop_to(&p))
        _exit(126);
    spank_close_from(3);
    become(c->argv, envp, false);
}

int spank_fp_run_as(uid_t uid, char *const argv[], uint64_t limit_ms)
{
    struct call c = {.uid = uid, .argv = argv};
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0)
        become_user(&c);
    return wait_for(pid, limit_ms);
}

/* The reaper's child runs when the note is there that the epilog finds it by. */
static int run_below_reaper(uint32_t job, struct spank_hold *h, struct call *c, uint64_t limit_ms)
{
    int go = -1, rc;
    struct pollfd p = {.events = POLLIN};
    unsigned char code;

    h->reaper = spank_reaper_start(become_user, c, &go);
    if (h->reaper < 0)
        return h->reaper;
    h->ticks = spank_process_ticks(h->reaper);
    rc = spank_hold_note(job, h);
    if (rc == 0 && send(go, "g", 1, MSG_NOSIGNAL) != 1)
        rc = -EPIPE;
    p.fd = go;
    if (rc == 0)
        rc = poll(&p, 1, (int)limit_ms) <= 0 ? -ETIMEDOUT : read(go, &code, 1) == 1 ? code : -EPIPE;
    close(go);
    return rc;
}

int spank_fp_run_held(uint32_t job, uid_t uid, uint32_t cores, char *const argv[], uint64_t limit_ms)
{
    struct spank_hold h;
    struct call c = {.uid = uid, .cores = cores, .hold = &h, .argv = argv};
    int rc = spank_hold_make(job, &h);
    pid_t pid;

    if (rc)
        return rc;
    if (!h.group[0])
        rc = run_below_reaper(job, &h, &c, limit_ms);
    else if ((rc = spank_hold_note(job, &h)) == 0) {
        pid = fork();
        if (pid == 0)
            become_user(&c);
        rc = pid < 0 ? -errno : wait_for(pid, limit_ms);
    }
    if (rc)
        (void)spank_hold_drop(job, &h, END_MS);
    return rc;
}
