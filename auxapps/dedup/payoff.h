/*
 * Is looking for duplicates worth it? Decides from what was found; pure, no clock, no lock.
 *
 * On: every window is digested. Off, after too few duplicates, it goes through pauses, in which nothing is looked at, and looks: at the first
 * PAYOFF_RUN_BYTES of each PAYOFF_RUN_OF times as many in each file, in all files, until as many bytes of later versions were compared as there were of versions that
 * had nothing to be compared with, i.e. at two versions of everything that is written again and again. What a look finds turns it on again. Else a pause follows of
 * PAYOFF_PAUSE times what the look has looked at, and of twice and four times as much as long as looks show nothing.
 *
 * A mount may write nothing at those places: of a file of all ranks it has every eighth block. So a look that has seen nothing in PAYOFF_BLIND_BYTES goes on with all that
 * is written, until it ends as above.
 *
 * So what it costs is a fixed part of the time, whatever is written: large files or small ones, by one rank or by many; and a look is long enough for all of them. It is
 * one state for all files of a mount: they are mostly of one job, and duplicates of one are a reason to look at all. For each file its own was there before: versions
 * counted file by file, of which two in sixteen were looked at. It needed something of each version, so that the first window of each file was digested, which of a
 * small file is all of it; and two files at different versions took each other's turns away.
 */
#ifndef DEDUP_PAYOFF_H
#define DEDUP_PAYOFF_H

#include <stdbool.h>
#include <stdint.h>

#define PAYOFF_RUN_BYTES ((uint64_t)4 << 20) /* a run of windows: data that has moved by less is found in it */
#define PAYOFF_RUN_OF 8u
#define PAYOFF_PAUSE 64u
#define PAYOFF_PAUSE_MAX 256u
#define PAYOFF_PAUSE_MIN_BYTES ((uint64_t)512 << 20)
#define PAYOFF_BLIND_BYTES ((uint64_t)512 << 20)

enum payoff_state { PAYOFF_ON, PAYOFF_PAUSING, PAYOFF_LOOKING };

struct payoff {
    double least;                  /* share of duplicates that pays; 0: always on */
    enum payoff_state state;
    uint64_t compared_bytes, same_bytes; /* since it is on or off; the past counts less and less */
    uint64_t until_bytes;          /* PAUSING: of all that has been written, when the next look begins */
    uint64_t looked_bytes; /* LOOKING: in this look */
    uint64_t alone_bytes;  /* of files without an earlier version. LOOKING: of those; ON: since one had one, or a duplicate was found */
    uint64_t look_from_bytes; /* LOOKING: of all that has been written, when it began */
    bool wide;             /* LOOKING: at everything */
    uint64_t look_max_bytes;       /* then a look ends in any case */
    unsigned pause;                /* times what was looked at */
};

enum payoff_change { PAYOFF_AS_IT_WAS, PAYOFF_TURNED_OFF, PAYOFF_TURNED_ON, PAYOFF_PAUSES, PAYOFF_LOOKS };

void payoff_init(struct payoff *p, double least);
/* So much has been written in all: a pause may be over. */
enum payoff_change payoff_goes_on(struct payoff *p, uint64_t written_bytes);
/* Must a window at file_off be looked at? */
bool payoff_wants(const struct payoff *p, uint64_t file_off);
/* Of so many bytes that were looked at, so many had a duplicate. alone: there was no earlier version to compare with; could: but they could have had one
 * all the same. written_bytes as above. */
enum payoff_change payoff_note(struct payoff *p, uint64_t looked_bytes, uint64_t same_bytes, bool alone, bool could, uint64_t written_bytes);
double payoff_share(const struct payoff *p);

#endif
