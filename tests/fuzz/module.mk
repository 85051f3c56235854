# Each fuzz_<name>.c is one harness; other .c files here but replay.c are a library for all. replay.c is their main() without libFuzzer.
TESTS_FUZZ := $(sort $(wildcard tests/fuzz/fuzz_*.c))

# Threads that take turns (threads.h), and their time (waits.h).
THREADS_WRAP := pthread_create pthread_join pthread_timedjoin_np pthread_setname_np pthread_cond_wait pthread_cond_timedwait pthread_cond_signal \
                pthread_cond_broadcast pthread_mutex_lock pthread_rwlock_rdlock pthread_rwlock_wrlock
WAITS_WRAP := usleep sem_wait sem_clockwait sem_post

# The data path of fp-mount over the models of tests/unit/cl_world.h, whose manager answers what the input says.
$(O)/tests/fuzz/fuzz_replies: ALL_LDFLAGS += $(CL_WRAP:%=-Wl,--wrap=%) $(THREADS_WRAP:%=-Wl,--wrap=%) $(WAITS_WRAP:%=-Wl,--wrap=%) \
                                        -Wl,--wrap=clock_gettime -Wl,--wrap=madvise -Wl,--wrap=world_mgr_call -Wl,--wrap=world_mgr_lasting

# Programs over connections without a network (wire.h).
WIRE_WRAP := fp_rpc_listen fp_rpc_connect fp_rpc_call fp_rpc_send fp_rpc_reply fp_rpc_reply_msg fp_rpc_conn_get fp_rpc_conn_put fp_rpc_conn_set_data \
             fp_rpc_conn_data fp_rpc_conn_pause fp_rpc_conn_resume fp_rpc_conn_close fp_rpc_conn_finish fp_rpc_conn_peer fp_rpc_conn_local \
             fp_rpc_listener_close fp_rpc_listener_port fp_rpc_flush fp_rpc_set_uuid uv_timer_init uv_timer_start uv_timer_stop uv_timer_get_due_in \
             uv_close clock_gettime
MEMFILE_WRAP := bnf_file_write bnf_file_read bnf_file_reopen close lseek64 fstat64
BNF_WRAP := bnf_disk_new bnf_disk_submit bnf_disk_pending bnf_disk_look bnf_disk_free fp_fdlink_listen fp_fdlink_server_close fp_fdlink_reply \
            fp_fdlink_reply_to fp_fdlink_peer_get fp_fdlink_peer_put fp_fdlink_peer_set_data fp_fdlink_peer_data fp_fdlink_peer_pid
$(O)/tests/fuzz/fuzz_benefactor: ALL_LDFLAGS += $(WIRE_WRAP:%=-Wl,--wrap=%) $(BNF_WRAP:%=-Wl,--wrap=%) $(MEMFILE_WRAP:%=-Wl,--wrap=%)
# Draining and fetching, with a worker that is the input.
FETCH_WRAP := bnf_disk_new bnf_disk_submit bnf_disk_pending bnf_disk_look bnf_disk_free dworker_start dworker_send dworker_segment_use dworker_segment_unuse \
              dworker_end dworker_reap dworker_memory
$(O)/tests/fuzz/fuzz_fetch: ALL_LDFLAGS += $(WIRE_WRAP:%=-Wl,--wrap=%) $(FETCH_WRAP:%=-Wl,--wrap=%) $(MEMFILE_WRAP:%=-Wl,--wrap=%)
$(O)/tests/fuzz/fuzz_recover: ALL_LDFLAGS += $(MEMFILE_WRAP:%=-Wl,--wrap=%) -Wl,--wrap=bnf_backend_dir_open
CLIENT_WRAP := cl_lockwork_new cl_lockwork_stop cl_lockwork_free cl_lockwork_at cl_lockwork_blocking cl_shutdown_request cl_process_place sem_wait
$(O)/tests/fuzz/fuzz_client: ALL_LDFLAGS += $(WIRE_WRAP:%=-Wl,--wrap=%) $(CLIENT_WRAP:%=-Wl,--wrap=%)
AUX_WRAP := pthread_create pthread_join pthread_cond_wait pthread_cond_timedwait poll cl_aux_tasks_start cl_aux_tasks_stop cl_aux_task_post cl_aux_spawn \
            cl_aux_host_put cl_aux_host_end cl_mgr_call cl_mgr_call_answered cl_mgr_call_sync cl_mgr_send cl_mgr_release cl_core_session cl_data_open \
            cl_data_write cl_data_read cl_data_read_done cl_data_flush cl_data_release cl_aux_svc_read_chunk
MEMSOCK_WRAP := close read write recv send sendmsg eventfd fp_memfd_new fp_memfd_seal mmap64 munmap
$(O)/tests/fuzz/fuzz_auxmount: ALL_LDFLAGS += $(WIRE_WRAP:%=-Wl,--wrap=%) $(AUX_WRAP:%=-Wl,--wrap=%) $(MEMSOCK_WRAP:%=-Wl,--wrap=%)
$(O)/tests/fuzz/fuzz_manager $(O)/tests/fuzz/fuzz_life: ALL_LDFLAGS += -Wl,--wrap=mgr_db_open -Wl,--wrap=mgr_db_close -Wl,--wrap=sqlite3_exec -Wl,--wrap=sqlite3_prepare_v2 \
                                        -Wl,--wrap=sqlite3_finalize

# The tree of a job's agents; node.c is the input.
$(O)/tests/fuzz/fuzz_jobagent: ALL_LDFLAGS += $(WIRE_WRAP:%=-Wl,--wrap=%) -Wl,--wrap=fp_key_load -Wl,--wrap=fp_rpc_new -Wl,--wrap=node_go -Wl,--wrap=node_stop

# fp-auxhost's main thread; all others take turns with it.
AUXHOST_WRAP := recvmmsg recv sendmsg poll setsockopt shutdown mmap64 madvise sigaltstack clock_gettime aux_plugin_load aux_plugin_free aux_guard_drop \
                aux_guard_has_reserve aux_thread_short aux_cores_new aux_cores_count aux_cores_width aux_cores_cpu aux_cores_pin aux_cores_choose
$(O)/tests/fuzz/fuzz_auxhost: ALL_LDFLAGS += $(THREADS_WRAP:%=-Wl,--wrap=%) $(AUXHOST_WRAP:%=-Wl,--wrap=%)

# Big blocks are kept from input to input (big.c).
$(O)/tests/fuzz/fuzz_%: ALL_LDFLAGS += -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc -Wl,--wrap=free \
                                 -Wl,--wrap=strdup -Wl,--wrap=strndup
