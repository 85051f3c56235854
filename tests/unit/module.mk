# Each test_<module>.c is one program; other .c files here are a library for all.
TESTS_UNIT := $(sort $(wildcard tests/unit/test_*.c))

# The data path of fp-mount against models of the manager and of benefactors (cl_world.h): what it calls is replaced by the linker.
CL_WRAP := cl_mgr_call_sync cl_mgr_call_lasting cl_mgr_call_known cl_mgr_fail_lasting cl_mgr_send cl_mgr_say cl_core_post cl_core_session cl_core_rpc cl_core_keyedsum fp_fdlink_open fp_fdlink_close fp_fdlink_shutdown \
           fp_fdlink_is_up fp_fdlink_call fp_rpc_connect fp_rpc_call fp_rpc_conn_close
$(addprefix $(O)/tests/unit/test_cl_data,_cut _fault _sync _limits _aux _coded _late _last _lost _gone _step _strict _behind _fold _burst _way _end) $(O)/tests/unit/test_cl_data: ALL_LDFLAGS += $(CL_WRAP:%=-Wl,--wrap=%)
$(addprefix $(O)/tests/unit/test_cl_data,_fault _sync): ALL_LDFLAGS += -Wl,--wrap=fdatasync

$(O)/tests/unit/test_cl_data_behind: ALL_LDFLAGS += -Wl,--wrap=cl_core_connected
$(O)/tests/unit/test_cl_data_end: ALL_LDFLAGS += -Wl,--wrap=cl_core_connected -Wl,--wrap=cl_mgr_wrote

# Which of its writes are a burst to the store threads, and who does not let these wait.
$(O)/tests/unit/test_cl_data_burst: ALL_LDFLAGS += -Wl,--wrap=cl_core_connected -Wl,--wrap=cl_jobs_burst -Wl,--wrap=cl_jobs_post_later -Wl,--wrap=cl_jobs_hurry
# The store threads, by a clock that the test moves on.
$(O)/tests/unit/test_cl_jobs: ALL_LDFLAGS += -Wl,--wrap=clock_gettime -Wl,--wrap=pthread_cond_timedwait

# The mounts of a machine that is the test's.
$(O)/tests/unit/test_ctl_find: ALL_LDFLAGS += -Wl,--wrap=fopen64 -Wl,--wrap=getxattr -Wl,--wrap=getcwd

# Whether blocks are summed by the library's own function.
$(O)/tests/unit/test_checksum: ALL_LDFLAGS += -Wl,--wrap=XXH3_64bits_dispatch

# A kernel without IPv6.
$(O)/tests/unit/test_addr: ALL_LDFLAGS += -Wl,--wrap=socket

# A process that the kernel does not let go.
$(O)/tests/unit/test_limited: ALL_LDFLAGS += -Wl,--wrap=waitpid

# What is made to last, and when.
$(O)/tests/unit/test_wholefile: ALL_LDFLAGS += -Wl,--wrap=fsync -Wl,--wrap=rename

# The application of a job, with a Slurm and a clock that are the test's.
$(O)/tests/unit/test_job_app: ALL_LDFLAGS += -Wl,--wrap=clock_gettime -Wl,--wrap=nanosleep -Wl,--wrap=kill -Wl,--wrap=fp_command -Wl,--wrap=job_slurm_step_of
# One that can't be removed in time.
$(O)/tests/unit/test_job_left: ALL_LDFLAGS += -Wl,--wrap=fp_remove_tree -Wl,--wrap=mkdir -Wl,--wrap=clock_gettime
# Who waits for the guard of a job.
$(O)/tests/unit/test_job_guard: ALL_LDFLAGS += -Wl,--wrap=clock_gettime -Wl,--wrap=job_launch_and_stay
JOB_END_WRAP := steps_after steps_stop launch_discard launch_end lost_find lost_all lost_clean
$(O)/tests/unit/test_job_end: ALL_LDFLAGS += $(JOB_END_WRAP:%=-Wl,--wrap=job_%)

# The same with models of aux-apps (cl_fake_aux.h).
CL_AUX_WRAP := cl_aux_chunks cl_aux_may_pass_over cl_aux_passes_over cl_aux_submit cl_aux_job_fini cl_aux_stored cl_aux_decode cl_aux_held cl_aux_hides cl_aux_lied cl_aux_pins_good cl_aux_pins_check cl_aux_pins_put cl_aux_session_new cl_aux_release_holds
$(addprefix $(O)/tests/unit/test_cl_data,_aux _coded _late _behind): ALL_LDFLAGS += $(CL_AUX_WRAP:%=-Wl,--wrap=%)

# The mount's side of aux-apps against a host that is this program, and a manager that holds chunks or not.
$(addprefix $(O)/tests/unit/test_cl_aux,_jobs _holds _refs _required _end _skip): ALL_LDFLAGS += -Wl,--wrap=cl_mgr_call -Wl,--wrap=cl_mgr_call_answered
# And one that does not end when it is killed.
$(O)/tests/unit/test_cl_aux_end: ALL_LDFLAGS += -Wl,--wrap=kill -Wl,--wrap=waitpid

# Requests to the manager without a loop and a connection.
$(O)/tests/unit/test_cl_mgr_call: ALL_LDFLAGS += -Wl,--wrap=cl_core_post_item -Wl,--wrap=fp_rpc_call -Wl,--wrap=fp_rpc_send

# Locks of programs, against a manager that is this program.
CL_LOCKS_WRAP := cl_mgr_call cl_mgr_call_answered cl_mgr_call_answered_soon cl_mgr_call_sync
$(O)/tests/unit/test_cl_locks: ALL_LDFLAGS += $(CL_LOCKS_WRAP:%=-Wl,--wrap=%)

# Which operations aux-apps are told of, whatever they ask for.
$(O)/tests/unit/test_cl_ops_watch: ALL_LDFLAGS += -Wl,--wrap=cl_aux_events_wanted

# One operation over the data path, without a kernel.
CL_OPEN_WRAP := cl_mgr_call_intr cl_mgr_release fuse_req_userdata fuse_req_ctx fuse_reply_open fuse_reply_err cl_early_flush cl_mgr_was_refused
$(O)/tests/unit/test_cl_data_release: ALL_LDFLAGS += $(CL_WRAP:%=-Wl,--wrap=%) $(CL_OPEN_WRAP:%=-Wl,--wrap=%)

# Sessions of this program, of which the kernel is told things.
$(O)/tests/unit/test_cl_notify: ALL_LDFLAGS += -Wl,--wrap=fuse_lowlevel_notify_increment_epoch -Wl,--wrap=fuse_lowlevel_notify_inval_inode

# Requests of a kernel that is this program.
$(O)/tests/unit/test_cl_receive: ALL_LDFLAGS += -Wl,--wrap=cl_data_pool -Wl,--wrap=fuse_session_fd -Wl,--wrap=fuse_session_custom_io_317

# Tests that start fp-drain.
$(O)/tests/unit/test_drain_engine $(O)/tests/unit/test_bnf_tasks: | $(O)/bin/fp-drain

# Emulated devices, by a clock that the test moves on.
$(O)/tests/unit/test_bnf_emulated: ALL_LDFLAGS += -Wl,--wrap=clock_gettime -Wl,--wrap=clock_nanosleep
$(O)/tests/unit/test_bnf_fetch $(O)/tests/unit/test_bnf_stage: | $(O)/bin/fp-drain

# A coordinator that is out of memory; one in a store with attributes of the test's.
$(O)/tests/unit/test_cv_watch: ALL_LDFLAGS += -Wl,--wrap=strdup
CW_WRAP := clock_gettime poll getxattr setxattr removexattr opendir readdir64 stat64 lstat64
$(O)/tests/unit/test_cv_watch_loop: ALL_LDFLAGS += $(CW_WRAP:%=-Wl,--wrap=%)
$(O)/tests/unit/test_cv_watch_store: ALL_LDFLAGS += -Wl,--wrap=getxattr -Wl,--wrap=lgetxattr
$(O)/tests/unit/test_cv_watch_breath: ALL_LDFLAGS += -Wl,--wrap=clock_gettime -Wl,--wrap=poll
# What a coordinator tells of a conversion.
$(O)/tests/unit/test_cv_worker: ALL_LDFLAGS += -Wl,--wrap=cw_tell_log

# One rank of several, without MPI.
CV_TEAM_WRAP := cv_team_join cv_team_agree cv_team_same cv_team_share fsync
$(O)/tests/unit/test_cv_engine_team: ALL_LDFLAGS += $(CV_TEAM_WRAP:%=-Wl,--wrap=%)
