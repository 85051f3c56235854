/* Bounds of what the manager answers to fpctl and fp-job, that they have to know. */
#ifndef FP_CTLWIRE_H
#define FP_CTLWIRE_H

#define FP_LOST_COUNTED_MAX 10000u /* CtlStatusReply.lost_files, in files: so many, or more */
#define FP_TORN_COUNTED_MAX 256u   /* CkptSet.torn_files, likewise */

#endif
