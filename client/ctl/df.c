/* fpctl benefactors and fpctl df: two small cuts of the status.
 *
 * df prints what df(1) prints, from the manager instead of the mount, so that it works on a machine that has none. The numbers
 * are the same at every moment: capacities of the benefactors, what chunks take, what is left. Chunks of deleted files count as
 * used until the benefactors have removed them, since df(1) takes for used what is not free. */
#include <stdio.h>

#include "client/ctl/cmd.h"
#include "fp/table.h"

static int benefactors(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlStatusReply *r = NULL;
    (void)store;
    int rc = ctl_ask_status(l, &r);
    if (rc < 0)
        return rc;
    if (o->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < r->n_benefactors; i++)
            json_array_append_new(list, ctl_json_bnf(r->benefactors[i]));
        rc = ctl_json_print(json_pack("{s:o}", "benefactors", list));
    } else {
        rc = ctl_print_benefactors(r->n_benefactors, r->benefactors);
        rc = rc < 0 ? rc : ctl_flush();
    }
    fp__ctl_status_reply__free_unpacked(r, NULL);
    return rc;
}

static int df_text(const Fp__CtlStatusReply *r, const struct ctl_store *store)
{
    static const struct fp_table_col cols[] = {{"store", false}, {"size", true},   {"used", true},
                                               {"deleting", true}, {"versions", true}, {"free", true}, {"use", true},
                                               {"inodes", true}, {"mounted on", false}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    fp_table_cell(t, "%s", ctl_manager_addr(r, store));
    fp_table_cell_size(t, r->total_bytes);
    fp_table_cell_size(t, ctl_used_bytes(r));
    fp_table_cell_size(t, r->garbage_bytes);
    fp_table_cell_size(t, r->version_bytes);
    fp_table_cell_size(t, r->free_bytes);
    fp_table_cell_percent(t, ctl_used_bytes(r), r->total_bytes);
    fp_table_cell_count(t, r->inodes);
    fp_table_cell(t, "%s", store->mountpoint[0] ? store->mountpoint : "-");
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc < 0 ? rc : ctl_flush();
}

static int df(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlStatusReply *r = NULL;
    int rc = ctl_ask_status(l, &r);
    if (rc < 0)
        return rc;
    if (o->json)
        rc = ctl_json_print(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "manager", ctl_manager_addr(r, store), "total_bytes",
                                      (json_int_t)r->total_bytes, "used_bytes", (json_int_t)ctl_used_bytes(r),
                                      "deleting_bytes", (json_int_t)r->garbage_bytes, "version_bytes", (json_int_t)r->version_bytes, "free_bytes", (json_int_t)r->free_bytes, "inodes", (json_int_t)r->inodes,
                                      "mountpoint", store->mountpoint));
    else
        rc = df_text(r, store);
    fp__ctl_status_reply__free_unpacked(r, NULL);
    return rc;
}

const struct ctl_cmd ctl_cmd_benefactors = {
    .words = "benefactors",
    .args = "[PATH]",
    .options = "",
    .help = "The benefactors alone, as each has reported itself within the last second.",
    .more = "free leaves out what is leased to mounts, which may fill it without asking; so all of them together can have less free than df says. A mount that does not "
            "write gives its leases back after some seconds.",
    .run = benefactors,
};

const struct ctl_cmd ctl_cmd_df = {
    .words = "df",
    .args = "[PATH]",
    .options = "",
    .help = "How full the store is, with the figures of df(1).",
    .more = "The column deleting is the part of used that belongs to deleted files; benefactors free it within about 2 seconds; versions that of what files were before they are rewritten (fpctl versions), "
            "which is given up before a program is told that there is no space.",
    .run = df,
};
