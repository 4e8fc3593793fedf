/* loop.h - the engine's thread: several turns, one step of each at a time.  Private to src/run. */
#ifndef LILY_RUN_LOOP_H
#define LILY_RUN_LOOP_H

/* The thread's function; takes the lily_engine, and ends when its queue is closed and empty. */
void *lily_loop(void *engine);

#endif
