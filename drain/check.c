/*
 * Are messages of the benefactor as they must be? Lengths, bounds, paths: pure functions over bytes.
 *
 * Called by link.c before anything is made of a message, so that the threads can index into it. Both ends are of one build, and the benefactor is trusted with
 * all that is done here; but it passes on what the manager has said, and a number that is wrong must end one worker and not write beyond its memory.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "drain/drain.h"

bool dr_path_is_good(const char *path, uint32_t len)
{
    uint32_t from = 0;

    if (len == 0 || len >= 4096)
        return false;
    for (uint32_t i = 0; i <= len; i++) {
        if (i < len && path[i] == '\0')
            return false;
        if (i < len && path[i] != '/')
            continue;
        if (i == from || (i - from == 1 && path[from] == '.') || (i - from == 2 && path[from] == '.' && path[from + 1] == '.'))
            return false;
        from = i + 1;
    }
    return true;
}

/* A name in FP_DW_TEMP_DIR. */
static bool tmp_is_good(const char *tmp, uint32_t len)
{
    return len <= FP_DW_TMP_MAX && dr_path_is_good(tmp, len) && !memchr(tmp, '/', len);
}

/* What we have for ourselves there is nobody's file. */
static bool is_reserved(const char *path, uint32_t len)
{
    static const char *const ours[] = { FP_DW_TEMP_DIR, FP_DW_MARKER };

    for (int i = 0; i < 2; i++) {
        uint32_t n = (uint32_t)strlen(ours[i]);

        if (len >= n && memcmp(path, ours[i], n) == 0 && (len == n || path[n] == '/'))
            return true;
    }
    return false;
}

static int check_xattrs(const uint8_t *p, uint64_t left, uint32_t n)
{
    while (n-- > 0) {
        uint32_t len[2];

        if (left < sizeof(len))
            return -EPROTO;
        memcpy(len, p, sizeof(len));
        left -= sizeof(len);
        p += sizeof(len);
        if (len[0] == 0 || len[0] > 255 || memchr(p, '\0', left < len[0] ? left : len[0]) || (uint64_t)len[0] + len[1] > left)
            return -EPROTO;
        p += (uint64_t)len[0] + len[1];
        left -= (uint64_t)len[0] + len[1];
    }
    return left == 0 ? 0 : -EPROTO;
}

static int check_file(const struct fp_dw_file *m, size_t len)
{
    const char *text = (const char *)(m + 1);
    bool path = m->h.type == FP_DW_PREPARE || m->h.type == FP_DW_FINISH || m->h.type == FP_DW_STAT;
    uint64_t names;

    if (len < sizeof(*m))
        return -EPROTO;
    names = (uint64_t)m->path_bytes + m->tmp_bytes + m->mark_bytes;
    if (names > len - sizeof(*m) || m->mark_bytes > (m->h.type == FP_DW_PREPARE ? FP_DW_LINK_MAX : 255))
        return -EPROTO;
    if (m->h.type == FP_DW_PREPARE && (S_ISLNK(m->mode) != (m->mark_bytes > 0) || memchr(text + m->path_bytes + m->tmp_bytes, '\0', m->mark_bytes)))
        return -EPROTO;
    if (path ? !dr_path_is_good(text, m->path_bytes) || is_reserved(text, m->path_bytes) : m->path_bytes != 0)
        return -EPROTO;
    if (m->h.type != FP_DW_STAT && !tmp_is_good(text + m->path_bytes, m->tmp_bytes))
        return -EPROTO;
    if (m->h.type == FP_DW_STAT && m->mark_bytes && !tmp_is_good(text + m->path_bytes + m->tmp_bytes, m->mark_bytes))
        return -EPROTO;
    if (m->size > INT64_MAX)
        return -EPROTO;
    return check_xattrs((const uint8_t *)text + names, len - sizeof(*m) - names, m->nxattrs);
}

static bool window_is_good(uint64_t window_bytes, uint64_t first, uint64_t size)
{
    return window_bytes >= 4096 && window_bytes <= FP_DW_WINDOW_MAX_BYTES && window_bytes % 4096 == 0 && size <= INT64_MAX &&
           first <= size / window_bytes;
}

static int check_slices(const struct fp_dw_write *m, const uint8_t *p)
{
    uint64_t end = 0, left = m->size - m->first * m->window_bytes;
    uint32_t windows = 0, data;
    uint64_t window = UINT64_MAX;

    for (uint32_t i = 0; i < m->nslices; i++) {
        struct fp_dw_slice s;

        memcpy(&s, p + i * sizeof(s), sizeof(s));
        if (s.len == 0 || s.at < end || (uint64_t)s.at + s.len > left || s.at / m->window_bytes != (s.at + (uint64_t)s.len - 1) / m->window_bytes)
            return -EPROTO;
        if (s.chunk_len == 0 || s.chunk_len > FP_STORED_MAX_BYTES || s.data_len > FP_CHUNK_MAX_BYTES || s.page == 0 || s.seg >= m->nsegments)
            return -EPROTO;
        data = s.data_len ? s.data_len : s.chunk_len;
        if (s.chunk_off >= data || s.len > data - s.chunk_off)
            return -EPROTO;
        windows += s.at / m->window_bytes != window;
        window = s.at / m->window_bytes;
        end = (uint64_t)s.at + s.len;
    }
    return windows <= FP_DW_WINDOWS_MAX ? 0 : -EPROTO;
}

static int check_write(const struct fp_dw_write *m, size_t len)
{
    const uint8_t *p = (const uint8_t *)(m + 1);

    if (len < sizeof(*m) || m->nslices > FP_DW_SLICES_MAX || m->nsegments > FP_DW_SEGMENTS_MAX || !window_is_good(m->window_bytes, m->first, m->size))
        return -EPROTO;
    if (len != sizeof(*m) + (uint64_t)m->tmp_bytes + 8ull * m->nsegments + (uint64_t)m->nslices * sizeof(struct fp_dw_slice))
        return -EPROTO;
    if (m->nslices == 0 || !tmp_is_good((const char *)p, m->tmp_bytes))
        return -EPROTO;
    return check_slices(m, p + m->tmp_bytes + 8ull * m->nsegments);
}

static int check_others(const struct fp_dw_verify *m, const uint8_t *p)
{
    uint64_t end = 0, left = m->size - m->first * m->window_bytes;

    for (uint32_t i = 0; i < m->nothers; i++) {
        struct fp_dw_range r;

        memcpy(&r, p + i * sizeof(r), sizeof(r));
        if (r.len == 0 || r.at < end || (uint64_t)r.at + r.len > left || r.at / m->window_bytes != (r.at + (uint64_t)r.len - 1) / m->window_bytes ||
            r.at / m->window_bytes >= m->count)
            return -EPROTO;
        end = (uint64_t)r.at + r.len;
    }
    return 0;
}

static int check_verify(const struct fp_dw_verify *m, size_t len)
{
    const char *text = (const char *)(m + 1);

    uint64_t names;

    if (len < sizeof(*m) || m->count == 0 || m->count > FP_DW_WINDOWS_MAX || !window_is_good(m->window_bytes, m->first, m->size))
        return -EPROTO;
    names = (uint64_t)m->path_bytes + m->tmp_bytes;
    if (len != sizeof(*m) + names + 8ull * m->count + (uint64_t)m->nothers * sizeof(struct fp_dw_range) ||
        m->first + m->count - 1 > m->size / m->window_bytes)
        return -EPROTO;
    if (m->tmp_bytes ? m->path_bytes || !tmp_is_good(text, m->tmp_bytes) : !dr_path_is_good(text, m->path_bytes))
        return -EPROTO;
    return check_others(m, (const uint8_t *)text + names + 8ull * m->count);
}

static int check_read(const struct fp_dw_read *m, size_t len)
{
    const char *path = (const char *)(m + 1);

    if (len < sizeof(*m) || len != sizeof(*m) + (uint64_t)m->path_bytes || !dr_path_is_good(path, m->path_bytes) || is_reserved(path, m->path_bytes))
        return -EPROTO;
    if (m->len == 0 || m->len > FP_STORED_MAX_BYTES || m->size > INT64_MAX || m->off > m->size || m->len > m->size - m->off)
        return -EPROTO;
    return m->to % FP_RECORD_ALIGN_BYTES == 0 && m->to <= INT64_MAX ? 0 : -EPROTO;
}

static int check_list(const struct fp_dw_list *m, size_t len)
{
    const char *path = (const char *)(m + 1);

    if (len < sizeof(*m) || len != sizeof(*m) + (uint64_t)m->path_bytes + m->after_bytes || m->max == 0 || m->max > FP_DW_LIST_MAX)
        return -EPROTO;
    if (m->path_bytes && (!dr_path_is_good(path, m->path_bytes) || is_reserved(path, m->path_bytes)))
        return -EPROTO;
    return m->after_bytes <= 255 && !memchr(path + m->path_bytes, '\0', m->after_bytes) ? 0 : -EPROTO;
}

static int check_merge(const struct fp_dw_merge *m, size_t len)
{
    const char *path = (const char *)(m + 1), *tmp;

    if (len < sizeof(*m) || len != sizeof(*m) + (uint64_t)m->path_bytes + m->tmp_bytes + m->log_bytes || m->step < FP_DW_MERGE_PREPARE || m->step > FP_DW_MERGE_FINISH)
        return -EPROTO;
    tmp = path + m->path_bytes;
    if (!dr_path_is_good(path, m->path_bytes) || is_reserved(path, m->path_bytes) || !tmp_is_good(tmp, m->tmp_bytes))
        return -EPROTO;
    return dr_path_is_good(tmp + m->tmp_bytes, m->log_bytes) && !is_reserved(tmp + m->tmp_bytes, m->log_bytes) ? 0 : -EPROTO;
}

static int check_config(const struct fp_dw_config *m, size_t len)
{
    const char *text = (const char *)(m + 1), *declared;
    uint32_t n = 0;

    if (len < sizeof(*m) || m->threads == 0 || m->threads > FP_DW_THREADS_MAX)
        return -EPROTO;
    if (m->root_bytes == 0 || m->root_bytes >= 4096 || m->plugin_dir_bytes >= FP_DW_PLUGIN_DIR_MAX ||
        len != sizeof(*m) + (uint64_t)m->root_bytes + m->plugin_dir_bytes + m->declared_bytes)
        return -EPROTO;
    if (*text != '/' || memchr(text, '\0', (size_t)m->root_bytes + m->plugin_dir_bytes))
        return -EPROTO;
    declared = text + m->root_bytes + m->plugin_dir_bytes;
    for (uint32_t i = 0; i < m->declared_bytes; i++)
        n += declared[i] == '\0';
    return n == m->ndeclared && (n == 0 ? m->declared_bytes == 0 : declared[m->declared_bytes - 1] == '\0') ? 0 : -EPROTO;
}

static int check_pace(const struct fp_dw_pace *m, size_t len)
{
    return len == sizeof(*m) && (m->mode == FP_DW_HOLD || m->mode == FP_DW_RUN) ? 0 : -EPROTO;
}

int dr_check(const uint8_t *msg, size_t len)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)msg;

    if (len < sizeof(*h) || h->len_bytes != len || len > FP_DW_WHOLE_MAX_BYTES)
        return -EPROTO;
    switch (h->type) {
    case FP_DW_CONFIG:
        return check_config((const struct fp_dw_config *)msg, len);
    case FP_DW_SEG_ADD:
    case FP_DW_SEG_DROP:
        return len == sizeof(struct fp_dw_seg) ? 0 : -EPROTO;
    case FP_DW_PACE:
        return check_pace((const struct fp_dw_pace *)msg, len);
    case FP_DW_CANCEL:
    case FP_DW_MEMORY:
        return len == sizeof(*h) ? 0 : -EPROTO;
    case FP_DW_READ:
        return check_read((const struct fp_dw_read *)msg, len);
    case FP_DW_MERGE:
        return check_merge((const struct fp_dw_merge *)msg, len);
    case FP_DW_LIST:
        return check_list((const struct fp_dw_list *)msg, len);
    case FP_DW_PREPARE:
    case FP_DW_FINISH:
    case FP_DW_STAT:
    case FP_DW_SWEEP:
    case FP_DW_CLEAN:
    case FP_DW_PROBE:
        return check_file((const struct fp_dw_file *)msg, len);
    case FP_DW_WRITE:
        return check_write((const struct fp_dw_write *)msg, len);
    case FP_DW_VERIFY:
        return check_verify((const struct fp_dw_verify *)msg, len);
    default:
        return -EPROTO;
    }
}
