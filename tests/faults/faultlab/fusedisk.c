/* A disk that fails as it is told: a directory, passed through by FUSE. See fusedisk.py.
 *
 *     fusedisk DIRECTORY SOCKET MOUNTPOINT -f [-o ...]
 *
 * SOCKET takes one line a connection, and answers with one:
 *
 *     add OP GLOB NTH TIMES KIND MS AT   a rule; its number. Of the requests that it is for, the
 *                                        NTH and so many after it (TIMES; 0: all) are hurt
 *     count RULE                         how many it has hurt
 *     clear                              no rules; what hangs goes on
 *     cut                                the power goes: bytes that were not made stable
 *
 * OP is read, write, or sync: fsync, and a write with RWF_DSYNC before its data is there. GLOB is
 * of the path below the mount at which the file was opened ("/..."; * is any text). AT: only
 * requests with this byte of the file; -1: all. KINDs: eio, enospc (of a sync: what was written can
 * be read, and is never stable); bad (EIO until byte AT is written); short (half a write); torn
 * (half a write, then EIO); slow (MS); hang (until clear); flip (a bit of what is read: of byte AT,
 * else of the middle); lost (a write is kept here until a sync of the file; a sync that fails loses
 * it); lie (lost whatever O_DSYNC says; of a sync: it does nothing).
 *
 * Of what is opened with O_DIRECT the kernel keeps no page, so each read and write comes here, one
 * of more than 1 MiB in parts. Of other files it keeps pages that were read until the next open.
 * The kernel sends no FSYNC after a write with RWF_DSYNC: it says O_DSYNC with the write. Writes to
 * one file come one at a time; a process with a request here can not end.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fuse3/fuse.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#define RULES_MAX 32
#define LINE_MAX_BYTES 1024
#define REQUEST_BYTES_MAX (1 << 20)
#define BACKGROUND_MAX 64

enum kind { NONE, EIO_, BAD, ENOSPC_, SHORT, TORN, SLOW, HANG, FLIP, LOST, LIE };
static const char *const kinds[] = {"none", "eio",  "bad",  "enospc", "short", "torn",
                                    "slow", "hang", "flip", "lost",   "lie"};

struct rule {
    char op[8], glob[512];
    long nth, times, ms, at, seen, hurt;
    enum kind kind;
};

/* What was written and not made stable, oldest first. */
struct extent {
    struct extent *next;
    ino_t file;
    off_t at;
    size_t size;
    bool stable; /* In the file as well: kept because older ones are written after it. */
    bool doomed; /* A sync failed: it can be read, and will never be stable. */
    char data[];
};

struct open_file {
    int fd;
    ino_t ino;
    char path[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cleared = PTHREAD_COND_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rule_count;
static unsigned long clears;
static struct extent *extents, **extents_end = &extents;
static int root = -1; /* The directory. */
static const char *socket_path;

static struct open_file *file_of(struct fuse_file_info *info)
{
    return (struct open_file *)(uintptr_t)info->fh;
}

static const char *below(const char *path) /* As the *at() calls want it; of no name: ENOENT. */
{
    return path == NULL ? "" : path[1] != 0 ? path + 1 : ".";
}

static int outcome(int result)
{
    return result < 0 ? -errno : 0;
}

/* --- Rules ---------------------------------------------------------------------------------- */

/* The first rule that hurts this request; slow and hung ones wait here. */
static struct rule judge(const char *op, const char *path, off_t at, size_t size)
{
    struct rule found = {.kind = NONE};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < rule_count && found.kind == NONE; i++) {
        struct rule *rule = &rules[i];
        if (rule->kind == NONE || strcmp(rule->op, op) != 0 ||
            fnmatch(rule->glob, path, 0) != 0)
            continue;
        if (rule->at >= 0 && (rule->at < at || rule->at >= at + (off_t)size))
            continue;
        rule->seen++;
        if (rule->seen < rule->nth || (rule->times > 0 && rule->hurt >= rule->times))
            continue;
        rule->hurt++;
        found = *rule;
    }
    unsigned long before = clears;
    while (found.kind == HANG && clears == before)
        pthread_cond_wait(&cleared, &lock);
    pthread_mutex_unlock(&lock);
    if (found.kind == SLOW)
        usleep((useconds_t)found.ms * 1000);
    return found;
}

static int failure(enum kind kind)
{
    return kind == EIO_ || kind == BAD ? -EIO : kind == ENOSPC_ ? -ENOSPC : 0;
}

/* --- What is not stable ----------------------------------------------------------------------- */

/* All with `lock`. */
static bool has_extents(ino_t file)
{
    for (struct extent *each = extents; each != NULL; each = each->next)
        if (each->file == file)
            return true;
    return false;
}

static bool keep(ino_t file, const char *data, size_t size, off_t at, bool stable)
{
    struct extent *extent = malloc(sizeof *extent + size);
    if (extent == NULL)
        return false;
    *extent = (struct extent){.file = file, .at = at, .size = size, .stable = stable};
    memcpy(extent->data, data, size);
    *extents_end = extent;
    extents_end = &extent->next;
    return true;
}

/* Takes out those of a file (0: of all), written to `fd` if there is one; bytes that were lost. */
static size_t drop(ino_t file, int fd, int *error)
{
    size_t lost = 0;
    struct extent **link = &extents;
    while (*link != NULL) {
        struct extent *each = *link;
        if (file != 0 && each->file != file) {
            link = &each->next;
            continue;
        }
        if (fd < 0 || each->doomed)
            lost += each->stable ? 0 : each->size;
        else if (pwrite(fd, each->data, each->size, each->at) != (ssize_t)each->size)
            *error = EIO;
        *link = each->next;
        free(each);
    }
    extents_end = link;
    return lost;
}

static off_t end_of(ino_t file, off_t size)
{
    for (struct extent *each = extents; each != NULL; each = each->next)
        if (each->file == file && each->at + (off_t)each->size > size)
            size = each->at + (off_t)each->size;
    return size;
}

static size_t overlay(ino_t file, char *data, size_t got, size_t size, off_t at)
{
    for (struct extent *each = extents; each != NULL; each = each->next) {
        off_t from = each->at > at ? each->at : at;
        off_t to = each->at + (off_t)each->size;
        to = to < at + (off_t)size ? to : at + (off_t)size;
        if (each->file != file || from >= to)
            continue;
        if ((off_t)got < from - at)
            memset(data + got, 0, (size_t)(from - at) - got);
        memcpy(data + (from - at), each->data + (from - each->at), (size_t)(to - from));
        got = (off_t)got > to - at ? got : (size_t)(to - at);
    }
    return got;
}

/* --- Files ------------------------------------------------------------------------------------ */

static int disk_read(const char *path, char *data, size_t size, off_t at,
                     struct fuse_file_info *info)
{
    (void)path;
    struct open_file *file = file_of(info);
    struct rule rule = judge("read", file->path, at, size);
    if (failure(rule.kind) < 0)
        return failure(rule.kind);
    ssize_t got = pread(file->fd, data, size, at);
    if (got < 0)
        return -errno;
    pthread_mutex_lock(&lock);
    size_t whole = overlay(file->ino, data, (size_t)got, size, at);
    pthread_mutex_unlock(&lock);
    if (rule.kind == FLIP && whole > 0) {
        size_t place = rule.at >= 0 ? (size_t)(rule.at - at) : whole / 2;
        if (place < whole)
            data[place] ^= 1;
    }
    return (int)whole;
}

static int sync_file(struct open_file *file, bool lies)
{
    int error = 0;
    if (lies)
        return 0;
    pthread_mutex_lock(&lock);
    drop(file->ino, file->fd, &error);
    pthread_mutex_unlock(&lock);
    if (error == 0 && fdatasync(file->fd) < 0)
        error = errno;
    return -error;
}

/* Of a file whose sync was told to fail. */
static int doom(struct open_file *file, int error)
{
    pthread_mutex_lock(&lock);
    for (struct extent *each = extents; each != NULL; each = each->next)
        if (each->file == file->ino)
            each->doomed = true;
    pthread_mutex_unlock(&lock);
    return error;
}

/* A bad sector that is written is another one from then on. With `lock`. */
static void remap(const char *path, off_t at, size_t size)
{
    for (int i = 0; i < rule_count; i++)
        if (rules[i].kind == BAD && rules[i].at >= at && rules[i].at < at + (off_t)size &&
            fnmatch(rules[i].glob, path, 0) == 0)
            rules[i].kind = NONE;
}

static int disk_write(const char *path, const char *data, size_t size, off_t at,
                      struct fuse_file_info *info)
{
    (void)path;
    struct open_file *file = file_of(info);
    bool sync = (info->flags & (O_DSYNC | O_SYNC)) != 0;
    struct rule rule = judge("write", file->path, at, size);
    if (failure(rule.kind) < 0)
        return failure(rule.kind);
    if (rule.kind == SHORT || rule.kind == TORN)
        size /= 2;
    struct rule after = {.kind = NONE};
    if (sync)
        after = judge("sync", file->path, at, size);
    bool fails = failure(after.kind) < 0;
    bool later = fails || rule.kind == LIE || (rule.kind == LOST && !sync);
    pthread_mutex_lock(&lock);
    remap(file->path, at, size);
    if ((later || has_extents(file->ino)) && !keep(file->ino, data, size, at, !later)) {
        pthread_mutex_unlock(&lock);
        return -ENOMEM;
    }
    pthread_mutex_unlock(&lock);
    if (fails)
        return doom(file, failure(after.kind));
    ssize_t done = later ? (ssize_t)size : pwrite(file->fd, data, size, at);
    if (done < 0)
        return -errno;
    if (rule.kind == TORN)
        return -EIO;
    if (sync && !later && fdatasync(file->fd) < 0)
        return -errno;
    return (int)done;
}

static int disk_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path, (void)data_only;
    struct open_file *file = file_of(info);
    struct rule rule = judge("sync", file->path, 0, SIZE_MAX / 2);
    if (failure(rule.kind) < 0)
        return doom(file, failure(rule.kind));
    return sync_file(file, rule.kind == LIE);
}

static int open_here(const char *path, struct fuse_file_info *info, int flags, mode_t mode)
{
    size_t length = strlen(path) + 1;
    struct open_file *file = malloc(sizeof *file + length);
    if (file == NULL)
        return -ENOMEM;
    /* The kernel knows where the end is; buffers here are not aligned. */
    if ((flags & O_ACCMODE) == O_WRONLY)
        flags = (flags & ~O_ACCMODE) | O_RDWR;
    info->direct_io = (flags & O_DIRECT) != 0;
    flags &= ~(O_APPEND | O_DIRECT | O_DSYNC | O_SYNC);
    file->fd = openat(root, below(path), flags | O_CLOEXEC, mode);
    struct stat stat;
    if (file->fd < 0 || fstat(file->fd, &stat) < 0) {
        int error = errno;
        free(file);
        return -error;
    }
    file->ino = stat.st_ino;
    memcpy(file->path, path, length);
    info->fh = (uintptr_t)file;
    return 0;
}

static int disk_open(const char *path, struct fuse_file_info *info)
{
    return open_here(path, info, info->flags, 0);
}

static int disk_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return open_here(path, info, info->flags | O_CREAT, mode);
}

static int disk_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    close(file_of(info)->fd);
    free(file_of(info));
    return 0;
}

static int disk_getattr(const char *path, struct stat *stat, struct fuse_file_info *info)
{
    int result = info != NULL ? fstat(file_of(info)->fd, stat)
                              : fstatat(root, below(path), stat, AT_SYMLINK_NOFOLLOW);
    if (result < 0)
        return -errno;
    pthread_mutex_lock(&lock);
    stat->st_size = end_of(stat->st_ino, stat->st_size);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int disk_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    int fd = info != NULL ? file_of(info)->fd : openat(root, below(path), O_RDWR | O_CLOEXEC);
    struct stat stat;
    int error = 0;
    if (fd < 0 || fstat(fd, &stat) < 0)
        return -errno;
    pthread_mutex_lock(&lock);
    drop(stat.st_ino, fd, &error);
    pthread_mutex_unlock(&lock);
    if (ftruncate(fd, size) < 0)
        error = errno;
    if (info == NULL)
        close(fd);
    return -error;
}

static int disk_fallocate(const char *path, int mode, off_t at, off_t size,
                          struct fuse_file_info *info)
{
    (void)path;
    return outcome(fallocate(file_of(info)->fd, mode, at, size));
}

/* --- Names ------------------------------------------------------------------------------------ */

static int disk_opendir(const char *path, struct fuse_file_info *info)
{
    return open_here(path, info, O_RDONLY | O_DIRECTORY, 0);
}

static int disk_readdir(const char *path, void *to, fuse_fill_dir_t fill, off_t at,
                        struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    (void)path, (void)at, (void)flags;
    int fd = openat(file_of(info)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL)
        return -errno;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        fill(to, entry->d_name, NULL, 0, 0);
    closedir(directory);
    return 0;
}

static int disk_fsyncdir(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path, (void)data_only;
    struct rule rule = judge("sync", file_of(info)->path, 0, SIZE_MAX / 2);
    return failure(rule.kind) < 0 ? failure(rule.kind) : outcome(fsync(file_of(info)->fd));
}

static int disk_mkdir(const char *path, mode_t mode)
{
    return outcome(mkdirat(root, below(path), mode));
}

static int disk_mknod(const char *path, mode_t mode, dev_t device)
{
    return outcome(mknodat(root, below(path), mode, device));
}

static int disk_unlink(const char *path)
{
    struct stat stat;
    int none = 0;
    bool last = fstatat(root, below(path), &stat, AT_SYMLINK_NOFOLLOW) == 0 && stat.st_nlink == 1;
    if (unlinkat(root, below(path), 0) < 0)
        return -errno;
    pthread_mutex_lock(&lock);
    if (last) /* Its number may be another file's soon. */
        drop(stat.st_ino, -1, &none);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int disk_rmdir(const char *path)
{
    return outcome(unlinkat(root, below(path), AT_REMOVEDIR));
}

static int disk_rename(const char *from, const char *to, unsigned int flags)
{
    return outcome(renameat2(root, below(from), root, below(to), flags));
}

static int disk_link(const char *from, const char *to)
{
    return outcome(linkat(root, below(from), root, below(to), 0));
}

static int disk_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    (void)info;
    return outcome(fchmodat(root, below(path), mode, 0));
}

static int disk_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *info)
{
    (void)info;
    return outcome(fchownat(root, below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int disk_utimens(const char *path, const struct timespec times[2],
                        struct fuse_file_info *info)
{
    (void)info;
    return outcome(utimensat(root, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int disk_statfs(const char *path, struct statvfs *stat)
{
    (void)path;
    return outcome(fstatvfs(root, stat));
}

/* --- Control ---------------------------------------------------------------------------------- */

static long add(const char *line)
{
    struct rule rule = {.kind = NONE};
    char kind[16];
    if (rule_count == RULES_MAX ||
        sscanf(line, "add %7s %511s %ld %ld %15s %ld %ld", rule.op, rule.glob, &rule.nth,
               &rule.times, kind, &rule.ms, &rule.at) != 7)
        return -1;
    for (size_t i = 1; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0)
            rule.kind = (enum kind)i;
    if (rule.kind == NONE)
        return -1;
    rules[rule_count] = rule;
    return rule_count++;
}

static long obey(const char *line)
{
    long answer = -1;
    int none = 0;
    pthread_mutex_lock(&lock);
    if (strncmp(line, "add ", 4) == 0) {
        answer = add(line);
    } else if (strncmp(line, "count ", 6) == 0) {
        long number = atol(line + 6);
        answer = number >= 0 && number < rule_count ? rules[number].hurt : -1;
    } else if (strncmp(line, "clear", 5) == 0) {
        answer = rule_count;
        rule_count = 0;
        clears++;
        pthread_cond_broadcast(&cleared);
    } else if (strncmp(line, "cut", 3) == 0) {
        answer = (long)drop(0, -1, &none);
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

static void *control(void *unused)
{
    (void)unused;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, 8) < 0) {
        perror(socket_path);
        exit(1);
    }
    for (;;) {
        char line[LINE_MAX_BYTES + 1];
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        ssize_t got = client >= 0 ? recv(client, line, LINE_MAX_BYTES, 0) : 0;
        if (got > 0) {
            line[got] = 0;
            dprintf(client, "%ld\n", obey(line));
        }
        if (client >= 0)
            close(client);
    }
    return NULL;
}

static void *disk_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    pthread_t thread;
    connection->max_write = REQUEST_BYTES_MAX;
    connection->max_background = BACKGROUND_MAX;
    /* Of short writes that it sent on its own the kernel makes EIO. */
    connection->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
    config->use_ino = 1;
    config->nullpath_ok = 1; /* And no lock on a path while a request hangs. */
    config->hard_remove = 1;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    if (pthread_create(&thread, NULL, control, NULL) != 0)
        exit(1);
    return NULL;
}

static const struct fuse_operations operations = {
    .init = disk_init,
    .getattr = disk_getattr,
    .open = disk_open,
    .create = disk_create,
    .read = disk_read,
    .write = disk_write,
    .fsync = disk_fsync,
    .release = disk_release,
    .truncate = disk_truncate,
    .fallocate = disk_fallocate,
    .opendir = disk_opendir,
    .readdir = disk_readdir,
    .fsyncdir = disk_fsyncdir,
    .releasedir = disk_release,
    .mkdir = disk_mkdir,
    .mknod = disk_mknod,
    .unlink = disk_unlink,
    .rmdir = disk_rmdir,
    .rename = disk_rename,
    .link = disk_link,
    .chmod = disk_chmod,
    .chown = disk_chown,
    .utimens = disk_utimens,
    .statfs = disk_statfs,
};

int main(int argc, char **argv)
{
    if (argc < 4 || (root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        fprintf(stderr, "usage: fusedisk DIRECTORY SOCKET MOUNTPOINT -f\n");
        return 2;
    }
    socket_path = argv[2];
    argv[2] = argv[0];
    umask(0);
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
