/*
 * What client/data calls, on a mount without aux-apps. Stands here until jobs.c, holds.c and link.c do: delete it with the first of them.
 */
#include "client/aux/aux.h"

#include <assert.h>
#include <errno.h>

bool cl_aux_chunks(const struct cl_mount *m)
{
	(void)m;
	return false;
}

void cl_aux_submit(struct cl_mount *m, struct cl_aux_job *job)
{
	(void)m;
	(void)job;
	assert(!"no aux-apps");
}

void cl_aux_job_fini(struct cl_mount *m, struct cl_aux_job *job)
{
	(void)m;
	(void)job;
}

void cl_aux_stored(struct cl_mount *m, const struct cl_aux_tickets *t, uint64_t chunk, uint32_t off, uint32_t len_bytes)
{
	(void)m;
	(void)t;
	(void)chunk;
	(void)off;
	(void)len_bytes;
}

int cl_aux_decode(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages, const struct iovec *coded, int ncoded,
		  const struct iovec *out, int nout, uint64_t deadline_ms)
{
	(void)m;
	(void)stages;
	(void)nstages;
	(void)coded;
	(void)ncoded;
	(void)out;
	(void)nout;
	(void)deadline_ms;
	return -EIO;
}

void cl_aux_pins_put(struct cl_mount *m, struct cl_aux_pins *pins)
{
	(void)m;
	(void)pins;
}

void cl_aux_session_new(struct cl_mount *m)
{
	(void)m;
}

bool cl_aux_release_holds(struct cl_mount *m)
{
	(void)m;
	return false;
}
