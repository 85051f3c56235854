# The #FP lines of batch scripts: what they say (library job), and fp-job, which checks and runs them.
LIBS  += job
PROGS += fp-job
job_DIRS    := jobscripts jobscripts/doctor
fp-job_MAIN := jobscripts/main.c
fp-job_LIBS := job auxhost common
fp-job_PKGS :=
