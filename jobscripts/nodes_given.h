/* --nodes and --hosts of a call: what they say, and whether they can be meant together, before the command does anything. */
#ifndef JOB_NODES_GIVEN_H
#define JOB_NODES_GIVEN_H

#include "jobscripts/job.h"
#include "jobscripts/launch/hosts.h"

#define JOB_NODES_GIVEN_WHY_BYTES (JOB_HOSTS_WHY_BYTES + 64u)

enum job_nodes_use {
    JOB_NODES_COUNTED, /* check and explain: their number counts */
    JOB_NODES_USED,    /* start and run: a store is started on them */
    JOB_NODES_HERE,    /* doctor and clean: of this machine, and nothing that is given */
    JOB_NODES_KNOWN,   /* others: of a store that there is, whose nodes are known */
};

/*
 * Reads o->hosts, once, as it may be a pipe, into o->host_names and o->nhosts, which job_hosts_free frees, whatever is returned; not where they are not used, nor
 * a file that check is to leave alone (o->words). 0; or negative: a mistake in the call, and why has a line.
 */
int job_nodes_given(struct job_options *o, enum job_nodes_use use, char why[JOB_NODES_GIVEN_WHY_BYTES]);

#endif
