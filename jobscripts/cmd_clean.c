/*
 * fp-job clean [JOB]: removes what jobs of this user that were killed have left on this node; or all that one job has here, whether it is alive or not. With --kept
 * and --named: what jobs have left that it may be found (agent/kept.h).
 *
 * The agent of the user's next job does the first, too: this is for who needs the space, or the mountpoint, before. The second is for what comes after a job,
 * such as a site's epilog, when nothing of it may stay, and for fp-job stop on nodes whose agents are gone. A node is seen to by itself, and several of them by srun: which
 * nodes a store lies on only these know, and a job on them may be over.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/kept.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/launch/outside.h"
#include "jobscripts/script/check.h"

/* An epilog runs as root, and what is there is the user's: nothing of it is touched by root, who would follow what the user has made of it. */
static int not_of_root(const char *job)
{
    char pattern[128];
    int rc = 0;
    glob_t g;

    snprintf(pattern, sizeof pattern, "/tmp/fpstore-[0-9]*-%s{,+*}", job);
    if (geteuid() != 0 || glob(pattern, GLOB_BRACE, NULL, &g) != 0)
        return 0;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        unsigned long uid = strtoul(g.gl_pathv[i] + strlen("/tmp/fpstore-"), NULL, 10);

        FP_ERROR("%s is another user's: runuser -u \"$(id -nu %lu)\" -- fp-job clean %s", g.gl_pathv[i], uid, job);
        rc = -EPERM;
    }
    globfree(&g);
    return rc;
}

static int clean_job(const char *job)
{
    char dir[PATH_MAX], whose[JOB_DIR_WHOSE_BYTES];
    struct stat st;
    int rc;

    if (!*job || strlen(job) > 64 || strspn(job, JOB_DIR_CHARS) != strlen(job)) {
        FP_ERROR("'%s' is no number of a job", job);
        return -EINVAL;
    }
    job_dir_path(dir, job);
    if (access(dir, F_OK) < 0)
        return not_of_root(job);
    rc = job_dir_make(dir); /* is it ours? */
    job_dir_whose(dir, whose, sizeof whose);
    if (rc == -EPERM && lstat(dir, &st) == 0 && st.st_uid != geteuid()) {
        FP_WARN("the job has nothing here, and %s is not its own: %s", dir, whose);
        return 0; /* an epilog that fails drains the node, which nobody shall do to others */
    }
    if (rc)
        FP_ERROR("%s: %s", dir, rc == -EPERM ? whose : fp_strerror(rc));
    else {
        job_outside_end(dir);
        job_left_clean(dir);
    }
    return rc;
}

/* Of --ssd. False: it is not known, or no directory that answers, which is logged if it is to be used. */
static bool find_ssd(const struct job_options *o, bool needed, char ssd[PATH_MAX])
{
    struct stat st;
    int rc = job_expand(ssd, o->ssd);

    if (rc && needed)
        FP_ERROR("where? %s is not set here: write --ssd=DIR, as the job has it in #FP store ssd=", rc == -ENOENT ? ssd : "a variable");
    rc = rc ? rc : job_answers(ssd, JOB_ANSWER_MS);
    if (rc == -ETIMEDOUT)
        FP_ERROR("%s: its file system has not answered for %u s", ssd, JOB_ANSWER_MS / 1000);
    else if (rc == 0 && needed && (stat(ssd, &st) < 0 || !S_ISDIR(st.st_mode))) {
        FP_ERROR("%s is no directory of this node", ssd);
        rc = -ENOTDIR;
    }
    return rc == 0;
}

static void print_kept(const struct job_kept *k, const char *ssd)
{
    char text[JOB_KEPT_TEXT];

    printf("%s: %s", k->name, job_kept_text(k, text));
    if (k->nodes)
        printf(", of %u node%s, %s the first: #FP store ssd=%s persistent=%s finds it", k->nodes, k->nodes == 1 ? "" : "s", k->first, ssd, k->name);
    else
        printf(", nothing is in it that a job could find");
    printf("; fp-job clean --named=%s --ssd=%s removes it\n", k->name, ssd);
}

static int list_kept(const char *ssd)
{
    struct job_kept *list = calloc(JOB_KEPT_MAX, sizeof *list);
    size_t n = list ? job_kept_look(ssd, NULL, list) : 0;

    for (size_t i = 0; i < n; i++)
        print_kept(&list[i], ssd);
    if (!n)
        FP_INFO("no store of yours is kept in %s on this node", ssd);
    free(list);
    return list ? 0 : -ENOMEM;
}

/* By its name and nothing else, as it can't be had back. */
static int remove_named(const char *name, const char *ssd)
{
    char dir[PATH_MAX];
    const char *why = job_store_name_why(name);
    int rc = why ? -EINVAL : job_named_path(dir, ssd, name);

    rc = rc ? rc : job_named_drop(dir);
    if (why)
        FP_ERROR("--named=%s: %s", name, why);
    else if (rc == -ENOENT)
        FP_ERROR("no store %s of yours is kept in %s on this node: fp-job clean --kept --ssd=%s says which are", name, ssd, ssd);
    else if (rc == -EBUSY)
        FP_ERROR("%s is in use by a job of yours on this node: nothing was removed", dir);
    else if (rc)
        FP_ERROR("%s: not all of it could be removed: %s", dir, rc == -EPERM ? "it belongs to somebody else, or others may read it" : fp_strerror(rc));
    else
        FP_INFO("%s is removed", dir);
    return rc;
}

int job_cmd_clean(const struct job_options *o)
{
    bool of_kept = o->kept || o->named;
    char ssd[PATH_MAX];

    if ((o->script != NULL) + o->kept + (o->named != NULL) > 1) {
        FP_ERROR("one of JOB, --kept and --named at a time");
        return -EINVAL;
    }
    if (o->script)
        return clean_job(o->script);
    bool known = find_ssd(o, of_kept, ssd);

    if (of_kept && !known)
        return -EINVAL;
    if (of_kept)
        return o->named ? remove_named(o->named, ssd) : list_kept(ssd);
    if (job_left_sweep(known ? ssd : NULL) + job_left_unmount_dead() == 0)
        FP_INFO("nothing is left here by jobs that were killed");
    return 0;
}
