/* Faults before the n-th file operation below a folder, and a log of all of them.

Loaded with LD_PRELOAD (tests/support/crashes/file_faults.py compiles it). Counted are operations that change what is
on disk: open for writing, write, fsync, truncate, rename, unlink, mkdir, rmdir, symlink. Files that are there in
some runs only, by the time that rounds take, are counted apart, as -1, -2, ...: so that numbers stay. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, TORN, FULL, IOERR, INTR, TERM, READONLY };

static char folder[PATH_MAX];
static size_t folder_length;
static volatile long point;
static unsigned char interrupted[1 << 12]; /* operations that are still to be interrupted, when `point` is 0 */
static volatile int kind = OFF;
static long counted, counted_apart, latest;
static int is_full, is_readonly;
static int log_descriptor = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char tracked[1 << 16]; /* descriptors of files below the folder */

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

void faults_arm(const char *below, long at, int what, const char *log)
{
    strncpy(folder, below, sizeof folder - 1);
    folder_length = strlen(folder);
    point = at;
    counted = counted_apart = latest = 0;
    memset(interrupted, 0, sizeof interrupted);
    is_full = is_readonly = 0;
    memset(tracked, 0, sizeof tracked);
    log_descriptor = log && *log ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644) : -1;
    kind = what;
}

long faults_count(void) { return counted; }

/* Interrupt each of these operations once. */
void faults_interrupt(const long *numbers, long size)
{
    memset(interrupted, 0, sizeof interrupted);
    for (long i = 0; i < size; i++) if (numbers[i] > 0 && numbers[i] < (long)sizeof interrupted) interrupted[numbers[i]] = 1;
    kind = INTR;
}

/* How many of them have not come. */
long faults_left(void)
{
    long left = 0;
    for (size_t i = 0; i < sizeof interrupted; i++) left += interrupted[i];
    return left;
}

/* The absolute path, or NULL where it is neither the folder nor below it. */
static const char *below(int at, const char *path, char *buffer)
{
    if (kind == OFF || !path) return NULL;
    if (path[0] != '/') {
        char link[64];
        ssize_t n;
        if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        n = readlink(link, buffer, PATH_MAX - 1);
        if (n < 0) return NULL;
        snprintf(buffer + n, PATH_MAX - n, "/%s", path);
        path = buffer;
    }
    if (strncmp(path, folder, folder_length)) return NULL;
    return path[folder_length] == '/' || !path[folder_length] ? path : NULL;
}

static int apart(const char *path) { return path && strstr(path, "/timing/messages-") != NULL; }

static int is_tracked(int descriptor)
{
    return kind != OFF && descriptor >= 0 && descriptor < (int)sizeof tracked && tracked[descriptor];
}

/* 0: go on; -1: go on with half of it, then die; else an errno to fail with. The lock is held from here on. */
static int strike(int is_apart, int takes_room)
{
    pthread_mutex_lock(&lock);
    latest = is_apart ? -++counted_apart : ++counted;
    if (latest > 0 && latest < (long)sizeof interrupted && interrupted[latest]) {
        interrupted[latest] = 0;
        counted--; /* it is begun again, under the same number */
        return EINTR;
    }
    if (latest == point) {
        switch (kind) {
        case KILL: raise(SIGKILL); pause();
        case TORN: return -1;
        case IOERR: return EIO;
        case INTR: return EINTR;
        case TERM: kill(getpid(), SIGTERM); break;
        case FULL: is_full = 1; break;
        case READONLY: is_readonly = 1;
        }
    }
    return is_readonly ? EROFS : is_full && takes_room ? ENOSPC : 0;
}

static void note(const char *operation, int descriptor, long a, long b, const void *data, size_t size)
{
    char head[128];
    size_t done = 0;
    if (log_descriptor < 0) return;
    REAL(ssize_t, "write", int, const void *, size_t);
    int n = snprintf(head, sizeof head, "%s %d %ld %ld %ld %zu\n", operation, descriptor, a, b, latest, size);
    if (real(log_descriptor, head, n) != n) return;
    while (done < size) {
        ssize_t more = real(log_descriptor, (const char *)data + done, size - done);
        if (more <= 0) return;
        done += more;
    }
}

static void finish(int fault)
{
    if (fault == -1) { raise(SIGKILL); pause(); }
    pthread_mutex_unlock(&lock);
}

#define FAIL(fault, value) \
    if (fault > 0) { pthread_mutex_unlock(&lock); errno = fault; return value; }

/* --- files ---------------------------------------------------------------------------------------------- */

static int opened(int (*call)(int, const char *, int, mode_t), int at, const char *path, int flags, mode_t mode)
{
    char buffer[PATH_MAX * 2];
    const char *mine = below(at, path, buffer);
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (!mine) return call(at, path, flags, mode);
    if (!writes) {
        int found = call(at, path, flags, mode);
        if (found >= 0) {
            pthread_mutex_lock(&lock);
            if (found < (int)sizeof tracked) tracked[found] = 1 + apart(mine);
            note("open", found, flags, 0, mine + folder_length, strlen(mine + folder_length));
            pthread_mutex_unlock(&lock);
        }
        return found;
    }
    int fault = strike(apart(mine), flags & O_CREAT);
    FAIL(fault, -1)
    int found = call(at, path, flags, mode);
    if (found >= 0 && found < (int)sizeof tracked) {
        tracked[found] = 1 + apart(mine);
        note("open", found, flags, 1, mine + folder_length, strlen(mine + folder_length));
    }
    finish(fault);
    return found;
}

static int call_openat(int at, const char *path, int flags, mode_t mode)
{
    REAL(int, "openat64", int, const char *, int, ...);
    return real(at, path, flags, mode);
}

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE return opened(call_openat, AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(call_openat, AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return opened(call_openat, at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return opened(call_openat, at, path, flags, mode); }

int close(int descriptor)
{
    REAL(int, "close", int);
    if (is_tracked(descriptor)) {
        pthread_mutex_lock(&lock);
        tracked[descriptor] = 0;
        note("close", descriptor, 0, 0, "", 0);
        int result = real(descriptor);
        pthread_mutex_unlock(&lock);
        return result;
    }
    return real(descriptor);
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!is_tracked(descriptor)) return real(descriptor, data, size);
    int fault = strike(tracked[descriptor] > 1, 1);
    FAIL(fault, -1)
    ssize_t done = real(descriptor, data, fault == -1 ? size / 2 : size);
    if (done > 0) note("write", descriptor, lseek(descriptor, 0, SEEK_CUR) - done, 0, data, done);
    finish(fault);
    return done;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    if (!is_tracked(fileno(file))) return real(data, size, count, file);
    int fault = strike(tracked[fileno(file)] > 1, 1);
    FAIL(fault, 0)
    size_t done = real(data, size, fault == -1 ? count / 2 : count, file);
    if (fault == -1) fflush(file);
    finish(fault);
    return done;
}

static int synced(const char *name, int descriptor)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (!is_tracked(descriptor)) return real(descriptor);
    int fault = strike(tracked[descriptor] > 1, 0);
    FAIL(fault, -1)
    note("fsync", descriptor, 0, 0, "", 0);
    int result = fault == -1 || log_descriptor >= 0 ? 0 : real(descriptor);
    finish(fault);
    return result;
}

int fsync(int descriptor) { return synced("fsync", descriptor); }
int fdatasync(int descriptor) { return synced("fdatasync", descriptor); }

static int cut(int descriptor, off64_t size)
{
    REAL(int, "ftruncate64", int, off64_t);
    if (!is_tracked(descriptor)) return real(descriptor, size);
    int fault = strike(tracked[descriptor] > 1, 0);
    FAIL(fault, -1)
    int result = real(descriptor, size);
    if (!result) note("cut", descriptor, size, 0, "", 0);
    finish(fault);
    return result;
}

int ftruncate(int descriptor, off_t size) { return cut(descriptor, size); }
int ftruncate64(int descriptor, off64_t size) { return cut(descriptor, size); }

static int cut_path(const char *path, off64_t size)
{
    REAL(int, "truncate64", const char *, off64_t);
    char buffer[PATH_MAX * 2];
    const char *mine = below(AT_FDCWD, path, buffer);
    if (!mine) return real(path, size);
    int fault = strike(apart(mine), 0);
    FAIL(fault, -1)
    int result = real(path, size);
    if (!result) note("cutpath", -1, size, 0, mine + folder_length, strlen(mine + folder_length));
    finish(fault);
    return result;
}

int truncate(const char *path, off_t size) { return cut_path(path, size); }
int truncate64(const char *path, off64_t size) { return cut_path(path, size); }

/* --- names ---------------------------------------------------------------------------------------------- */

static int two_names(const char *operation, int from_at, const char *from, int to_at, const char *to)
{
    char first[PATH_MAX * 2], second[PATH_MAX * 2], both[PATH_MAX * 4];
    REAL(int, "renameat", int, const char *, int, const char *);
    const char *a = below(from_at, from, first), *b = below(to_at, to, second);
    if (!a || !b) return real(from_at, from, to_at, to);
    int fault = strike(apart(b), 0);
    FAIL(fault, -1)
    int result = real(from_at, from, to_at, to);
    if (!result) {
        int n = snprintf(both, sizeof both, "%s\n%s", a + folder_length, b + folder_length);
        note(operation, -1, 0, 0, both, n);
    }
    finish(fault);
    return result;
}

int rename(const char *from, const char *to) { return two_names("rename", AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_at, const char *from, int to_at, const char *to)
{
    return two_names("rename", from_at, from, to_at, to);
}

static int removed(int at, const char *path, int flags)
{
    char buffer[PATH_MAX * 2];
    REAL(int, "unlinkat", int, const char *, int);
    const char *mine = below(at, path, buffer);
    struct stat there;
    if (!mine || lstat(mine, &there)) return real(at, path, flags); /* nothing there changes nothing */
    int fault = strike(apart(mine), 0);
    FAIL(fault, -1)
    int result = real(at, path, flags);
    int error = errno;
    if (!result) note("remove", -1, 0, 0, mine + folder_length, strlen(mine + folder_length));
    finish(fault);
    errno = error;
    return result;
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return removed(at, path, flags); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }

static int made(int at, const char *path, mode_t mode)
{
    char buffer[PATH_MAX * 2];
    REAL(int, "mkdirat", int, const char *, mode_t);
    const char *mine = below(at, path, buffer);
    struct stat there;
    if (!mine || !lstat(mine, &there)) return real(at, path, mode);
    int fault = strike(apart(mine), 1);
    FAIL(fault, -1)
    int result = real(at, path, mode);
    int error = errno;
    if (!result) note("mkdir", -1, 0, 0, mine + folder_length, strlen(mine + folder_length));
    finish(fault);
    errno = error;
    return result;
}

int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return made(at, path, mode); }

static int linked(const char *target, int at, const char *path)
{
    char buffer[PATH_MAX * 2], both[PATH_MAX * 3];
    REAL(int, "symlinkat", const char *, int, const char *);
    const char *mine = below(at, path, buffer);
    if (!mine) return real(target, at, path);
    int fault = strike(apart(mine), 1);
    FAIL(fault, -1)
    int result = real(target, at, path);
    int error = errno;
    if (!result) note("symlink", -1, 0, 0, both, snprintf(both, sizeof both, "%s\n%s", target, mine + folder_length));
    finish(fault);
    errno = error;
    return result;
}

int symlink(const char *target, const char *path) { return linked(target, AT_FDCWD, path); }
int symlinkat(const char *target, int at, const char *path) { return linked(target, at, path); }
