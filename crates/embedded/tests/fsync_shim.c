// Stands between the store and the system's calls, for the tests in fsync.rs. It appends to SHIM_LOG
//   write K        the bytes of write number K ("MARK:K;") went into a journal
//   begin N / end N / failed N   the journal's fdatasync number N
// so that the order of lines is the order of events. SHIM_DELAY_MS delays every fdatasync of a journal,
// SHIM_FAIL_AFTER lets all after that many fail with EIO.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static ssize_t (*real_write)(int, const void *, size_t);

static long setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? atol(text) : otherwise;
}

static void note(const char *what, long number) {
  const char *path = getenv("SHIM_LOG");
  if (!path) return;
  int log = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  char line[64];
  int length = snprintf(line, sizeof line, "%s %ld\n", what, number);
  if (log >= 0) {
    if (real_write(log, line, length) != length) abort();
    close(log);
  }
}

static int is_journal(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  return length > 4 && memcmp(path + length - 4, ".jnl", 4) == 0;
}

ssize_t write(int fd, const void *bytes, size_t count) {
  if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
  ssize_t written = real_write(fd, bytes, count);
  if (written > 0 && is_journal(fd)) {
    const char *at = bytes, *end = at + written;
    while ((at = memmem(at, end - at, "MARK:", 5))) {
      at += 5;
      note("write", strtol(at, NULL, 10));
    }
  }
  return written;
}

int fdatasync(int fd) {
  static int (*real_fdatasync)(int);
  static long calls;
  if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
  if (!real_fdatasync) real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  if (!is_journal(fd)) return real_fdatasync(fd);
  long call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  note("begin", call);
  long delay_ms = setting("SHIM_DELAY_MS", 0);
  struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
  nanosleep(&delay, NULL);
  if (call > setting("SHIM_FAIL_AFTER", call)) {
    note("failed", call);
    errno = EIO;
    return -1;
  }
  int result = real_fdatasync(fd);
  note(result == 0 ? "end" : "failed", call);
  return result;
}
