/* disk.h - conversations that outlive memory and process: the folder of --cache-dir (docs/cache-format.md).  Private to
 * src/run; the engine's thread alone calls it once it is open.
 *
 * One file a conversation: its tokens, its keys and values, and the recurrent state at a few positions, at which a
 * prompt can go on from it.  In memory there is only an index, of the tokens before each of these positions as a hash;
 * they are compared when a file is read.  A file that was read or written last goes last when the folder is larger
 * than its limit.
 *
 * What is in the folder is never believed, and nothing in it is needed: whatever is damaged, of another version or
 * model, or gone meanwhile counts as absent, with a line in the log the first time.  Two processes may share a folder:
 * files appear whole, under names that their content gives, and either may remove any of them at any time. */
#ifndef LILY_RUN_DISK_H
#define LILY_RUN_DISK_H

#include "run/replies.h"
#include "run/session.h"

typedef struct lily_disk lily_disk;

/* Memory that an open cache takes beside its index. */
uint64_t lily_disk_cost(const lily_loaded *m);

/* Makes the folder, for this user alone, if it is not there, and reads what is in it.  limit: bytes of all files; 0:
 * LILY_DEFAULT_DISK_BYTES.  LILY_UNSUPPORTED when the device cannot write states down. */
int lily_disk_open(lily_disk **out, const lily_loaded *m, const char *dir, uint64_t limit, lily_err *e);
void lily_disk_close(lily_disk *d);     /* NULL is allowed */

/* How many of these tokens a LOAD would bring. */
uint32_t lily_disk_prefix(const lily_disk *d, const int32_t *tokens, uint32_t n);
/* The empty session becomes the conversation with the longest prefix of these tokens, as far as it goes.  Anything but
 * LILY_OK leaves it empty; the file is not looked at again. */
int lily_disk_load(lily_disk *d, lily_session *s, const int32_t *tokens, uint32_t n, lily_err *e);

/* Whether the conversation is there as it is now. */
bool lily_disk_has(const lily_disk *d, const lily_session *s);
/* Whether it is time to write it though nothing forces that: each time is a whole file, so a large one waits until an
 * eighth of it is new. */
bool lily_disk_is_due(const lily_disk *d, const lily_session *s);
/* Writes the conversation, and removes those that are the beginning of it.  `stop` is asked between pieces (NULL:
 * never): LILY_CANCELLED, and nothing has changed.  `sync`: waits until the disk has it. */
int lily_disk_save(lily_disk *d, const lily_session *s, bool sync, bool (*stop)(void *user), void *user, lily_err *e);

/* The replies that were sampled, without which a conversation that comes back as JSON would not be found.  Save adds
 * to those that another process wrote. */
void lily_disk_load_replies(lily_disk *d, lily_replies *r);
void lily_disk_save_replies(lily_disk *d, lily_replies *r);

/* Removes everything of this model. */
void lily_disk_clear(lily_disk *d);

#endif
