/* Fault points: named places where a test makes a call fail, stall or kill the process.
 *
 *     int rc = FP_FAULT_POINT("bnf.pwrite");
 *     if (rc < 0)
 *         return rc;
 *
 * Compiled in only with -DFP_FAULT (make FAULT=1, and the sanitizer builds); otherwise the macro is the
 * constant 0. Names are <program>.<place>: bnf.pwrite, mgr.commit, cl.seal.
 *
 * FP_FAULTS="bnf.pwrite=EIO:after=10:count=1,mgr.commit=kill:after=5"
 *   action  an errno name or one of our own codes (EIO, ENOSPC, FP_EAUTH): returned as negative code
 *           delay:ms=N   sleep N ms, return 0        hang   sleep for ever
 *           kill         SIGKILL to this process     abort  abort(3)
 *   after=N let N hits pass first; count=N fire at most N times (default: no limit); every=N fire on each
 *           N-th of the remaining hits. Deterministic: hits are counted, there is no randomness.
 * Several rules may name one point; the first that fires wins. A spec that is not understood ends the
 * program (exit 2): a test must not pass because of a typing mistake. Each firing writes the line
 * "<prog>: INFO: fault fired: <name>" to stderr whatever the log level, so that a test can check it. */
#ifndef FP_FAULT_H
#define FP_FAULT_H

#ifdef FP_FAULT
#define FP_FAULT_POINT(name) fp_fault_hit(name)
#else
#define FP_FAULT_POINT(name) 0
#endif

/* Reads FP_FAULTS; call from main after fp_log_init. Without FP_FAULT compiled in, and FP_FAULTS set,
 * ends the program with a line saying so. */
void fp_fault_init(void);

/* Counts a hit; 0, a negative code, or does not return. Any thread; blocks when told to. Present in every
 * build, so that tests of the mechanism itself need no variant. */
int fp_fault_hit(const char *name);

/* Replaces the rules; 0 or -EINVAL, which leaves none. spec NULL or "" = none. For tests. */
int fp_fault_set(const char *spec);

/* How often the named point has fired since fp_fault_set. */
unsigned long fp_fault_fired(const char *name);

#endif
