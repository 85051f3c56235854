/*
 * fp-job doctor: is a site fit for jobs with a store, and what is to be changed if not.
 *
 * What is found out (facts) and what is made of it (checks) are apart: checks are pure, one function for each row of a table, so that every answer can be had
 * without a machine that has this mistake. One thread.
 */
#ifndef JOB_DOCTOR_H
#define JOB_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOCTOR_TEXT_BYTES 256u /* of one text; a line of one node stays below what srun passes on in one piece */
#define DOCTOR_NAME_BYTES 128u

enum doctor_status { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_WRONG };

struct doctor_answer {
    enum doctor_status status;
    char found[DOCTOR_TEXT_BYTES];
    char change[DOCTOR_TEXT_BYTES]; /* what to do, and where; "": nothing */
};

/* What an answer is when it is not OK. found must have been said. */
void doctor_warn(struct doctor_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doctor_wrong(struct doctor_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doctor_found(struct doctor_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- Slurm */

struct doctor_slurm {
    int rc;               /* of asking the controller: 0; -ENOENT: there are no commands of Slurm here; -ETIMEDOUT; others: it does not answer */
    const char *config;   /* what scontrol show config has printed */
    const char *plugstack; /* text of the file PlugStackConfig; NULL: it can't be read here */
};

/* The value of a key; "" if it is not there, or null. Returns out. */
const char *doctor_conf(const struct doctor_slurm *s, const char *key, char *out, size_t size);
/* Is word one of a list with commas, or the beginning of one up to its "="? In any case of letters. */
bool doctor_listed(const char *list, const char *word);

struct doctor_slurm_check {
    const char *name;
    void (*judge)(const struct doctor_slurm *s, struct doctor_answer *a);
};
/* NULL names the end. The first one says whether the others make sense. */
extern const struct doctor_slurm_check doctor_slurm_checks[];

/* Asks, within some seconds. The caller frees config and plugstack. */
void doctor_slurm_look(struct doctor_slurm *out);

/* ---------------------------------------------------------------- nodes */

struct doctor_node {
    char kernel[DOCTOR_NAME_BYTES];      /* uname -r */
    int device_rc;                       /* of opening /dev/fuse */
    char helper[DOCTOR_NAME_BYTES];      /* fusermount3; "": not in PATH */
    bool helper_root;                    /* it is root's, and runs as root */
    bool is_root, user_allow_other;
    int mount_rc;                        /* of mounting and unmounting a file system for a moment */
    char mount_why[DOCTOR_NAME_BYTES];   /* what the helper said */
    unsigned fuse_minor;                 /* FUSE 7.x, as the kernel says in its first request; 0: not known */
    bool passthrough;
    int namespace_rc;                    /* of mounting one in a user namespace */
    char namespace_why[2 * DOCTOR_NAME_BYTES];
    char uring;                          /* 'Y' and 'N' of the kernel's switch; 0: it has none */
    char mountpoint[DOCTOR_NAME_BYTES];  /* that stores have by default */
    bool mountpoint_taken;               /* a store is mounted there */
    int mountpoint_rc;                   /* of looking at it, -ENOTCONN: nobody serves it any more; else: of what a mount there needs */
    char ssd[DOCTOR_NAME_BYTES];         /* directory of ssd=; the name of a variable that is not set, if ssd_rc is -ENOENT and unset */
    bool ssd_unset;
    int ssd_rc;                          /* of writing a file there */
    int direct_rc;                       /* of writing it with O_DIRECT */
    uint64_t ssd_magic, ssd_free_bytes;  /* of statfs(2) */
    bool cgroup_v1, cgroup_v2;
    uint32_t cores, cpus, cpus_machine;  /* that the job has here; that the machine has. 0: not known */
    char service[DOCTOR_NAME_BYTES];     /* CPUs that #FP cores 1 would take; "": none */
    uint64_t nofile, memlock;            /* hard limits; UINT64_MAX: none */
    uint64_t nproc;                      /* the limit as it is, which nobody raises */
    char first[DOCTOR_NAME_BYTES];       /* the first node of the job; "": we are in none */
    int first_rc;                        /* of finding its address */
    char version[32];                    /* of fpstore */
    int64_t clock_off_ms;                /* at least so much is the clock off, against the machine that asked */
    bool clock_known;
    const char *asked_version;           /* of who asks; NULL: we do */
};

struct doctor_node_check {
    const char *name;
    void (*judge)(const struct doctor_node *n, struct doctor_answer *a);
};
extern const struct doctor_node_check doctor_node_checks[];
/* What only who asked can judge: version, clock. */
extern const struct doctor_node_check doctor_peer_checks[];

struct doctor_node_wants {
    const char *ssd;   /* with variables */
    const char *first; /* "": none */
};

/* Looks at this machine; nothing of it is left. Blocks for some seconds at most, but for a file system that hangs in the kernel. */
void doctor_node_look(const struct doctor_node_wants *w, struct doctor_node *out);

/* ---------------------------------------------------------------- report */

struct doctor_line {
    const char *check; /* static */
    struct doctor_answer answer;
    char **nodes;      /* that say the same; none: it is about Slurm, or this machine */
    size_t nnodes;
};

struct doctor_report {
    struct doctor_line *lines;
    size_t n, wrong, warnings;
};

/* One more answer, of this node; NULL: of none. What another node has answered to the letter becomes one line with it. Out of memory aborts. */
void doctor_report_add(struct doctor_report *r, const char *check, const struct doctor_answer *a, const char *node);
/* Nodes of each line by name, n2 before n10: they were heard in any order. */
void doctor_report_sort(struct doctor_report *r);
void doctor_report_print(const struct doctor_report *r);
void doctor_report_json(const struct doctor_report *r);
void doctor_report_fini(struct doctor_report *r);

/* What a node says to who asks: a line of JSON for each check, and one that ends. Below 1 KiB each. */
void doctor_say(const char *node, const char *check, const struct doctor_answer *a);
void doctor_say_end(const char *node, const char *version, int64_t clock_ms, unsigned lines);

/* One line of that. False: it is none. */
struct doctor_said {
    char node[DOCTOR_NAME_BYTES];
    const char *check; /* of the tables; NULL: the end */
    struct doctor_answer answer;
    char version[32];
    int64_t clock_ms;
    unsigned lines; /* that came before the end */
};
bool doctor_hear(const char *line, struct doctor_said *out);

#endif
