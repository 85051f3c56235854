"""The most telling tests of single files and of shared ones once more, with --close behind: it is to be noticed nowhere else than in test_behind.py."""

from test_multi_mount import (test_a_reader_that_looks_again_sees_the_new_version, test_attributes_are_seen,  # noqa: F401
                              test_exclusive_create_has_one_winner, test_n1_interleaved_bytes_within_one_page,
                              test_names_are_seen_at_once, test_open_after_close_sees_everything,
                              test_random_turns_of_four_mounts_match_a_model, test_unlinked_elsewhere_while_open)
from test_posix_attr import test_mtime_that_is_set_stays, test_times_change_with_what_is_done, test_write_and_chown_clear_setuid  # noqa: F401
from test_posix_io import (test_append_of_two_threads_keeps_records_whole, test_file_replaced_by_rename_lives_while_open,  # noqa: F401
                           test_fsync_leaves_nothing_at_risk, test_o_tmpfile_or_clean_refusal, test_o_trunc_empties,
                           test_random_operations_match_native, test_truncate_up_and_down, test_unlinked_file_lives_while_open)
from test_posix_locks import test_mmap_and_read_write_agree  # noqa: F401
from test_posix_sparse import (test_copy_file_range_of_what_is_not_yet_stored, test_data_never_hides_in_a_hole,  # noqa: F401
                               test_punch_frees_and_zeros)

MOUNTS = 4
MOUNT_ARGS = ["--close=behind"]
