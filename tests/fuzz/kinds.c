/* Every type of message (kinds.h). Called by the harnesses and by replay.c, on their only thread. */
#include "tests/fuzz/kinds.h"

#include <stdio.h>
#include <stdlib.h>

#include "fp.pb-c.h"
#include "fp/auxwire.h"
#include "life.pb-c.h"

#define K(T, to, msg, reply) {FP__MSG_TYPE__MSG_##T, to, &fp__##msg##__descriptor, &fp__##reply##__descriptor}

/* The first ones are what bytes 0.. of an input give: names first, so that there are files. */
static const struct fuzz_kind kinds[] = {
    K(MKNOD, TO_MANAGER, mk_nod, attr_reply),
    K(COMMIT, TO_MANAGER, commit, commit_reply),
    K(LOOKUP, TO_MANAGER, lookup, attr_reply),
    K(GETATTR, TO_MANAGER, inode_req, attr_reply),
    K(SETATTR, TO_MANAGER, set_attr, attr_reply),
    K(UNLINK, TO_MANAGER, unlink, unlink_reply),
    K(RENAME, TO_MANAGER, rename, empty),
    K(LINK, TO_MANAGER, link, attr_reply),
    K(READLINK, TO_MANAGER, inode_req, read_link_reply),
    K(READDIR, TO_MANAGER, read_dir, read_dir_reply),
    K(OPEN, TO_MANAGER, open, attr_reply),
    K(RELEASE, TO_MANAGER | NOTICE, release, empty),
    K(SETXATTR, TO_MANAGER, set_xattr, empty),
    K(GETXATTR, TO_MANAGER, get_xattr, xattr_reply),
    K(LISTXATTR, TO_MANAGER, inode_req, xattr_reply),
    K(REMOVEXATTR, TO_MANAGER, remove_xattr, empty),
    K(STATFS, TO_MANAGER, stat_fs, stat_fs_reply),
    K(INODES, TO_MANAGER, inodes, inodes_reply),
    K(LOCK, TO_MANAGER, lock, lock_reply),
    K(CLOSED, TO_MANAGER | NOTICE, closed, empty),
    K(RECALL, TO_MANAGER | TO_CLIENT | NOTICE, recall, empty),
    K(SLICEMAP, TO_MANAGER, slice_map, slice_map_reply),
    K(PUNCH, TO_MANAGER, punch, commit_reply),
    K(SEEK, TO_MANAGER, seek, seek_reply),
    K(CLONE, TO_MANAGER, clone, commit_reply),
    K(BADCHUNK, TO_MANAGER | NOTICE, bad_chunk, empty),
    K(SYNC, TO_MANAGER, sync, sync_reply),
    K(HOLD, TO_MANAGER | TO_CLIENT, hold, hold_reply),
    K(NOTES, TO_MANAGER, notes, notes_reply),
    K(NOTE_FIND, TO_MANAGER, note_find, notes_reply),
    K(TABLE, TO_MANAGER, table, table_reply),
    K(AUX_MSG, TO_MANAGER | TO_CLIENT, aux_msg, aux_msg_reply),
    K(AUX_SET, TO_MANAGER | TO_CLIENT, aux_set, aux_msg_reply),
    K(CLIENT_STATS, TO_MANAGER | NOTICE, client_stats, empty),
    K(KEEPALIVE, TO_MANAGER | NOTICE, keep_alive, empty),
    K(CTL_STATUS, TO_MANAGER, empty, ctl_status_reply),
    K(CTL_LAYOUT, TO_MANAGER, ctl_layout, ctl_layout_reply),
    K(CTL_STOP, TO_MANAGER, empty, empty),
    K(CTL_LOCKS, TO_MANAGER, ctl_locks, ctl_locks_reply),
    K(HELLO, TO_MANAGER, hello, hello_reply),
    K(BYE, TO_MANAGER, bye, empty),
    K(BNF_TABLE, TO_CLIENT, bnf_table, empty),
    K(ALONE, TO_CLIENT, alone, alone),
    K(LOCK_GRANT, TO_CLIENT | TO_MANAGER, lock_grant, empty), /* which does not take it */
    K(LOCK_RECALL, TO_CLIENT, inode_req, empty),
    K(READY, TO_CLIENT, empty, empty),
    K(STOP, TO_CLIENT | TO_BENEFACTOR, empty, empty),
    {43, TO_CLIENT, &fp__empty__descriptor, &fp__empty__descriptor}, /* a type that this release does not know, as a newer one may have */
    K(LEASE, TO_BENEFACTOR | TO_MANAGER, lease, lease_reply), /* likewise */
    K(LEASE_RETURN, TO_BENEFACTOR, lease_return, empty),
    K(STORED, TO_BENEFACTOR, stored, empty),
    K(WRITE, TO_BENEFACTOR, chunk_write, empty),
    K(LOCATE, TO_BENEFACTOR, chunk_list, locate_reply),
    K(READ, TO_BENEFACTOR, chunk_read, chunk_read_reply),
    K(BNF_SYNC, TO_BENEFACTOR, bnf_sync, bnf_sync_reply),
    K(BNF_HELLO, TO_BENEFACTOR, bnf_hello, bnf_hello_reply),
    K(DELETE, TO_BENEFACTOR | TO_CLIENT, chunk_list, chunk_list),
    K(INVENTORY, TO_BENEFACTOR | TO_MANAGER, inventory, inventory_reply),
    K(TASK_DONE, TO_MANAGER, task_done, task_ack),
    K(PACE, TO_BENEFACTOR | NOTICE, pace, empty),
    K(BNF_SET, TO_BENEFACTOR, bnf_set, bnf_set_reply),
    K(BNF_SYNC_ALL, TO_BENEFACTOR, empty, bnf_sync_reply),
    K(TASKS, TO_BENEFACTOR, tasks, empty),
    K(FETCH, TO_BENEFACTOR, fetch, fetch_reply),
    K(LEVEL, TO_MANAGER, level_ask, level_reply),
    K(POLICY, TO_MANAGER, policy, policy_reply),
    K(CTL_SETS, TO_MANAGER, ctl_sets, ctl_sets_reply),
    K(CTL_CONVERSIONS, TO_MANAGER, ctl_conversions, ctl_conversions_reply),
    K(CTL_SET_SAY, TO_MANAGER, ctl_set_say, ckpt_set),
    K(CTL_VERSIONS, TO_MANAGER, ctl_versions, ctl_versions_reply),
    K(CTL_DRAIN, TO_MANAGER, ctl_drain, ctl_drain_reply),
    K(CTL_STAGE, TO_MANAGER, ctl_stage, ctl_stage_reply),
    K(CTL_BNF_SET, TO_MANAGER, ctl_bnf_set, ctl_bnf_set_reply),
    K(CTL_RELEASE, TO_MANAGER, empty, ctl_release_reply),
};
#undef K

#define NKINDS (sizeof kinds / sizeof *kinds)

size_t fuzz_kinds_of(unsigned to, const struct fuzz_kind *const **out)
{
    static struct list {
        unsigned to;
        size_t n;
        const struct fuzz_kind *kind[NKINDS];
    } lists[4];
    struct list *l = lists;

    while (l->to && l->to != to)
        l++;
    FUZZ_CHECK(l < lists + 4);
    l->to = to;
    for (size_t i = 0; i < NKINDS && (l->n == 0 || i > 0); i++) /* once */
        if (kinds[i].to & to)
            l->kind[l->n++] = &kinds[i];
    *out = l->kind;
    return l->n;
}

const ProtobufCMessageDescriptor *fuzz_reply_of(uint32_t type)
{
    for (size_t i = 0; i < NKINDS; i++)
        if (kinds[i].type == type)
            return kinds[i].reply;
    return &fp__empty__descriptor;
}

/* The first ones are what most bytes of an input give. */
const struct fuzz_aux_kind fuzz_aux_kinds[] = {
    {FP_AUXW_CHUNK_OUT, sizeof(struct fp_auxw_chunk_out)}, {FP_AUXW_CHUNK_IN, sizeof(struct fp_auxw_chunk_in)},
    {FP_AUXW_STORED, sizeof(struct fp_auxw_stored)},       {FP_AUXW_EVENT, sizeof(struct fp_auxw_event)},
    {FP_AUXW_FILE, sizeof(struct fp_auxw_file)},           {FP_AUXW_SET, sizeof(struct fp_auxw_set)},
    {FP_AUXW_MESSAGE, sizeof(struct fp_auxw_message)},     {FP_AUXW_CHANGE, sizeof(struct fp_auxw_change)},
    {FP_AUXW_CANCEL, sizeof(struct fp_auxw_done)},         {FP_AUXW_CONFIG, sizeof(struct fp_auxw_config)},
    {FP_AUXW_START, sizeof(struct fp_auxw_start)},         {FP_AUXW_STOP, sizeof(struct fp_auxw_head)},
};
const size_t fuzz_aux_nkinds = sizeof fuzz_aux_kinds / sizeof *fuzz_aux_kinds;
_Static_assert(sizeof fuzz_aux_kinds / sizeof *fuzz_aux_kinds == FP_AUXW_READY - FP_AUXW_CONFIG, "a new message to the host: a line above");

const ProtobufCMessageDescriptor *fuzz_aux_reply_of(uint32_t service)
{
    static const ProtobufCMessageDescriptor *const replies[] = {
        &fp__notes_reply__descriptor, &fp__notes_reply__descriptor, &fp__hold_reply__descriptor,  NULL,
        &fp__table_reply__descriptor, NULL,                         &fp__empty__descriptor,       &fp__attr_reply__descriptor,
        &fp__xattr_reply__descriptor, &fp__empty__descriptor,       &fp__aux_msg_reply__descriptor,
        &fp__policy_reply__descriptor};

    _Static_assert(FP_AUXW_SVC_POLICY - FP_AUXW_SVC_EARLIER == 11, "a new service: its answer above");
    service -= FP_AUXW_SVC_EARLIER;
    return service < sizeof replies / sizeof *replies ? replies[service] : &fp__empty__descriptor;
}

void fuzz_kinds_check(void)
{
    const ProtobufCEnumDescriptor *d = &fp__msg_type__descriptor;

    for (unsigned i = 0; i < d->n_values; i++) {
        bool known = d->values[i].value == FP__MSG_TYPE__MSG_NONE;

        for (size_t k = 0; k < NKINDS; k++)
            known |= kinds[k].type == d->values[i].value;
        if (known)
            continue;
        fprintf(stderr, "%s: no harness sends it: a line in tests/fuzz/kinds.c is missing\n", d->values[i].name);
        exit(1);
    }
}
