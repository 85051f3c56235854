/*
 * Steps that Slurm refuses for the moment (see refused.h). Called by launch.c, for the step of the agents.
 *
 * srun would wait by itself, without a word where it is to be quiet, until the controller wakes it or two minutes have passed; and the controller wakes those that
 * wait for another step's end, not those that have come while a node was on its way back to service, as after the crash for which a job is queued again.
 * Therefore it is called with --immediate, and again.
 *
 * By the words of slurm_strerror, which are the same in all languages, and in Slurm 22.05 to 24.11: srun's exit code is 1 for every reason.
 */
#include "jobscripts/launch/refused.h"

#include <stddef.h>
#include <string.h>

bool job_refused_for_now(const char *text)
{
    static const char said[] = "Unable to create step for job ";
    static const char *const passing[] = {"Requested nodes are busy", "Required ports are in use", "Required node not available", "Switch resources currently not available",
                                          "PrologSlurmctld is still running", "step creation delayed", "Socket timed out", "Unable to contact slurm controller", "Resource temporarily unavailable", NULL};
    const char *line = strstr(text, said), *end;

    if (!line)
        return false;
    end = strchr(line, '\n');
    end = end ? end : line + strlen(line);
    for (const char *const *p = passing; *p; p++) {
        const char *found = strstr(line, *p);

        if (found && found < end)
            return true;
    }
    return false;
}
