/*
 * Service threads: a few that may block, for requests of the host and for what results need before they can be handed over.
 *
 * They are not the store threads: a service that waits for the manager would keep data from being stored. And not the link thread, which must go on to
 * look after deadlines while a service waits. The queue is bounded by the host's threads, each of which has one request under way, and by
 * the region, in which the result of each job lies.
 */
#include <stdlib.h>

#include "client/aux/internal.h"

static void *task_thread(void *arg)
{
    struct cl_aux *a = arg;

    pthread_setname_np(pthread_self(), "aux-service");
    pthread_mutex_lock(&a->task_lock);
    for (;;) {
        struct aux_task *t = a->tasks;

        if (!t) {
            if (a->tasks_stop)
                break;
            pthread_cond_wait(&a->task_cond, &a->task_lock);
            continue;
        }
        a->tasks = t->next;
        if (!a->tasks)
            a->tasks_end = &a->tasks;
        pthread_mutex_unlock(&a->task_lock);
        t->run(a, t);
        pthread_mutex_lock(&a->task_lock);
    }
    pthread_mutex_unlock(&a->task_lock);
    return NULL;
}

int cl_aux_tasks_start(struct cl_aux *a)
{
    const uint32_t most = sizeof(a->task_thread) / sizeof(a->task_thread[0]);
    int rc = 0;

    pthread_mutex_init(&a->task_lock, NULL);
    pthread_cond_init(&a->task_cond, NULL);
    a->tasks_end = &a->tasks;
    while (a->ntask_threads < most && rc == 0) {
        rc = -pthread_create(&a->task_thread[a->ntask_threads], NULL, task_thread, a);
        if (rc == 0)
            a->ntask_threads++;
    }
    return a->ntask_threads > 0 ? 0 : rc;
}

void cl_aux_tasks_stop(struct cl_aux *a)
{
    pthread_mutex_lock(&a->task_lock);
    a->tasks_stop = true;
    pthread_cond_broadcast(&a->task_cond);
    pthread_mutex_unlock(&a->task_lock);
    while (a->ntask_threads > 0)
        pthread_join(a->task_thread[--a->ntask_threads], NULL);
    pthread_cond_destroy(&a->task_cond);
    pthread_mutex_destroy(&a->task_lock);
}

void cl_aux_task_post(struct cl_aux *a, struct aux_task *t)
{
    t->next = NULL;
    pthread_mutex_lock(&a->task_lock);
    *a->tasks_end = t;
    a->tasks_end = &t->next;
    pthread_cond_signal(&a->task_cond);
    pthread_mutex_unlock(&a->task_lock);
}
