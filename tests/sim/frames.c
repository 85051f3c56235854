/*
 * What programs send each other, as frames: each is counted, told in the trace, and may be where a fault strikes. net.c calls this with the bytes of a stream as they
 * are sent; who sets sim_on_frame sees whole messages.
 */
#include <stdlib.h>
#include <string.h>

#include "fp.pb-c.h"
#include "fp/drainwire.h"
#include "tests/sim/model.h"
#include "tests/sim/net.h"

void (*sim_on_frame)(const struct sim_proc *from, const struct sim_proc *to, const struct fp_frame *f, const uint8_t *msg);

static void ends(struct sim_frames *s, const struct sim_proc *from, const struct sim_proc *to)
{
    if (sim_on_frame)
        sim_on_frame(from, to, &s->frame, s->msg);
    free(s->msg);
    s->msg = NULL;
    s->msg_len = 0;
}

static void goes_on(struct sim_frames *s, const uint8_t *p, size_t len)
{
    size_t room = s->frame.msg_len_bytes - s->msg_len;

    if (!s->msg && room)
        s->msg = malloc(room);
    len = len < room ? len : room;
    if (!s->msg || !len)
        return;
    memcpy(s->msg + s->msg_len, p, len);
    s->msg_len += len;
}

static void begins(struct sim_frames *s, struct sim_proc *from, struct sim_proc *to)
{
    struct fp_frame *f = &s->frame;

    s->head_len = 0;
    if (fp_frame_decode(s->head, f))
        sim_fail("%s sends what is not a frame", from ? from->name : "?");
    s->left = f->msg_len_bytes + f->payload_len_bytes;
    sim.messages++;
    sim_note((uint64_t)f->type << 32 ^ f->id ^ (uint64_t)f->flags << 48);
    if (f->type < 0xFF00)
        sim_trace("%s > %s: %s%s #%llu%s %d, %u + %u bytes", from ? from->name : "?", to ? to->name : "?", sim_message_name(f->type),
                  f->flags & FP_FRAME_REPLY ? " reply" : "", (unsigned long long)f->id, f->flags & FP_FRAME_REPLY ? " status" : "", f->status, f->msg_len_bytes,
                  f->payload_len_bytes);
    if (from && to && from->kind == SIM_MANAGER && to->kind == SIM_MOUNT)
        model_heard(to);
    if (from && from->kind == SIM_MANAGER && f->type == FP__MSG_TYPE__MSG_DELETE && !(f->flags & FP_FRAME_REPLY))
        sim_fault_strike(SIM_AT_DELETION, from);
    sim_fault_message(from, to);
}

void sim_frames_send(struct sim_frames *s, struct sim_proc *from, struct sim_proc *to, const uint8_t *p, size_t len)
{
    while (len) {
        size_t n = s->left ? s->left : sizeof s->head - s->head_len;

        n = n < len ? n : len;
        if (s->left) {
            s->left -= n;
            if (sim_on_frame)
                goes_on(s, p, n);
        } else {
            memcpy(s->head + s->head_len, p, n);
            s->head_len += n;
        }
        p += n;
        len -= n;
        if (s->head_len == sizeof s->head)
            begins(s, from, to);
        else if (s->head_len)
            continue;
        if (!s->left)
            ends(s, from, to);
    }
}

void sim_packet_sends(struct sim_proc *from, struct sim_proc *to, const uint8_t *p, size_t len)
{
    struct fp_dw_head h = {0};

    memcpy(&h, p, len < sizeof h ? len : sizeof h);
    sim.messages++;
    sim_note((uint64_t)h.type << 32 ^ h.id);
    sim_trace("%s > %s: %u of fp/drainwire.h, task %llx.%llu, %zu bytes", from->name, to->name, h.type, (unsigned long long)h.id, (unsigned long long)h.gen, len);
    sim_fault_message(from, to);
}
