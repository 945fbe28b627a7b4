// SPDX-License-Identifier: Apache-2.0
// Holds a process where it opens a library, until the probes are on.
//
// A fanotify group asks us before each open that goes through the marked mounts. A
// thread of our own answers: at once, without the GIL, to everything that isn't a
// library we wait for, and at the latest after the deadline. When we die, the kernel
// allows what is waiting and the marks are gone.
#include "parts.h"
#include "support.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <pybind11/stl.h>
#include <set>
#include <sstream>
#include <string>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace igsdk {
namespace {

// Local file systems only. The kernel opens each file a second time for us, as root, and
// refuses the workload's own open when that fails, as it does on NFS with root squashed
// or on another user's FUSE mount. Libraries seen there count as attached late instead.
const std::set<std::string> kHeldTypes = {
    "bcachefs", "btrfs", "erofs", "exfat",  "ext2",     "ext3",  "ext4", "f2fs", "iso9660",  "jfs",
    "overlay",  "ramfs", "ntfs3", "nilfs2", "squashfs", "tmpfs", "vfat", "xfs",  "virtiofs", "zfs",
};
// The same by number, as far as those systems can be a whole root.
const std::set<decltype(statfs::f_type)> kHeldMagics = {
    BTRFS_SUPER_MAGIC,     EROFS_SUPER_MAGIC_V1, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, RAMFS_MAGIC,
    OVERLAYFS_SUPER_MAGIC, SQUASHFS_MAGIC,       TMPFS_MAGIC,      XFS_SUPER_MAGIC,
};
// Events read at once: each brings an open descriptor, and where there is none left the
// kernel refuses the workload's open.
constexpr size_t kEventsAtOnce = 16;
constexpr size_t kMaxWaiting = 64;

// One open that waits. The descriptor stays open as long as Python has this, also when
// the deadline has let the open go on: its number can't come to mean another file.
struct Held {
    uint64_t token;
    std::string path;
    std::shared_ptr<Fd> file;
    uint64_t device, inode;
    pid_t pid;
    uint64_t time_ns; // boot clock
};

struct Mount {
    std::string point, type;
};

// Undoes the kernel's \ooo for blanks, tabs, newlines and backslashes.
std::string unescape(const std::string &text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

std::string read_again(int fd) {
    std::string text;
    char block[4096];
    ::lseek(fd, 0, SEEK_SET);
    for (ssize_t n; (n = ::read(fd, block, sizeof(block))) > 0;)
        text.append(block, static_cast<size_t>(n));
    return text;
}

std::vector<Mount> read_mounts(int mountinfo) {
    std::vector<Mount> mounts;
    std::istringstream file(read_again(mountinfo));
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string skipped, point, type;
        words >> skipped >> skipped >> skipped >> skipped >> point;
        while (words >> skipped && skipped != "-") {
        }
        if (words >> type)
            mounts.push_back({unescape(point), type});
    }
    return mounts;
}

// What tells one mount namespace from another; "" where nobody says.
std::string mount_namespace(pid_t pid) {
    char text[64];
    std::string link = "/proc/" + std::to_string(pid) + "/ns/mnt";
    ssize_t length = ::readlink(link.c_str(), text, sizeof(text));
    return {text, length > 0 ? static_cast<size_t>(length) : 0};
}

class OpenHold {
  public:
    OpenHold(pid_t pid, std::vector<std::string> prefixes, double deadline)
        : prefixes_(std::move(prefixes)), deadline_ns_(static_cast<uint64_t>(deadline * 1e9)),
          namespace_(mount_namespace(pid)), ready_(make_eventfd()), wake_(make_eventfd()) {
        group_.reset(::fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK |
                                         FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS,
                                     O_RDONLY | O_LARGEFILE | O_CLOEXEC));
        if (!group_)
            throw_errno("fanotify_init");
        std::string proc = "/proc/" + std::to_string(pid);
        mountinfo_.reset(::open((proc + "/mountinfo").c_str(), O_RDONLY | O_CLOEXEC));
        root_.reset(::open((proc + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!mountinfo_ || !root_)
            throw_errno("cannot read the mounts of the command");
        mark();
        if (marked_ == 0)
            throw_errno("cannot mark the mounts of the command", mark_error_);
        thread_ = start_quiet_thread([this] { run(); });
    }

    ~OpenHold() { close(); }

    int fileno() const { return ready_.get(); }

    std::vector<Held> take() {
        std::lock_guard<std::mutex> guard(lock_);
        clear_eventfd(ready_);
        return std::exchange(fresh_, {});
    }

    bool release(uint64_t token) {
        std::lock_guard<std::mutex> guard(lock_);
        auto waiting = waiting_.find(token);
        if (waiting == waiting_.end())
            return false;
        answer(waiting);
        return true;
    }

    std::map<std::string, uint64_t> counts() {
        std::lock_guard<std::mutex> guard(lock_);
        return {{"opens", opens_},
                {"held", held_},
                {"late", late_},
                {"full", full_},
                {"waiting", waiting_.size()},
                {"marked", marked_}};
    }

    std::vector<std::pair<std::string, std::string>> unmarked() {
        std::lock_guard<std::mutex> guard(lock_);
        return {unmarked_.begin(), unmarked_.end()};
    }

    void close() {
        stopping_ = true;
        signal_eventfd(wake_);
        if (thread_.joinable())
            thread_.join();
        std::lock_guard<std::mutex> guard(lock_);
        while (!waiting_.empty())
            answer(waiting_.begin());
        fresh_.clear();
        for (Fd *fd : {&group_, &mountinfo_, &root_}) // they keep the mounts alive
            fd->reset();
    }

  private:
    struct Waiting {
        std::shared_ptr<Fd> file;
        uint64_t until;
    };

    // Marks are idempotent: called again when the mounts change. Only mounts of the
    // process's own namespace are marked, so nobody else's opens wait for us.
    void mark() {
        size_t marked = is_plain_folder() && mark_one("/") ? 1 : 0;
        std::map<std::string, std::string> unmarked;
        for (const Mount &mount : read_mounts(mountinfo_.get())) {
            if (!kHeldTypes.count(mount.type))
                unmarked[mount.point] = mount.type;
            else if (mark_one(mount.point))
                marked++;
            else
                unmarked[mount.point] = std::strerror(mark_error_);
        }
        std::lock_guard<std::mutex> guard(lock_);
        marked_ = marked;
        unmarked_ = std::move(unmarked);
    }

    bool mark_one(const std::string &point) {
        int result = ::fanotify_mark(group_.get(), FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN_PERM,
                                     root_.get(), ("." + point).c_str());
        if (result != 0)
            mark_error_ = errno;
        return result == 0;
    }

    // In a chroot the root may be any folder: the mount that it lies in is not listed.
    bool is_plain_folder() {
        struct statfs status;
        for (const Mount &mount : read_mounts(mountinfo_.get()))
            if (mount.point == "/")
                return false;
        return ::fstatfs(root_.get(), &status) == 0 && kHeldMagics.count(status.f_type);
    }

    void run() {
        while (!stopping_) {
            pollfd polled[] = {{group_.get(), POLLIN, 0},
                               {wake_.get(), POLLIN, 0},
                               {mountinfo_.get(), POLLPRI, 0}};
            ::poll(polled, 3, timeout_ms());
            if (polled[0].revents & POLLIN)
                read_events();
            if (polled[2].revents & POLLPRI)
                mark();
            release_late();
        }
    }

    int timeout_ms() {
        std::lock_guard<std::mutex> guard(lock_);
        if (waiting_.empty())
            return -1;
        uint64_t now = clock_ns(CLOCK_MONOTONIC), until = waiting_.begin()->second.until;
        return until <= now ? 0 : static_cast<int>((until - now) / 1000000 + 1);
    }

    // Tokens grow with time and all wait equally long: the first is the oldest.
    void release_late() {
        std::lock_guard<std::mutex> guard(lock_);
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        while (!waiting_.empty() && waiting_.begin()->second.until <= now) {
            late_++;
            answer(waiting_.begin());
        }
    }

    void read_events() {
        alignas(
            fanotify_event_metadata) char buffer[kEventsAtOnce * sizeof(fanotify_event_metadata)];
        ssize_t left = ::read(group_.get(), buffer, sizeof(buffer));
        auto *event = reinterpret_cast<fanotify_event_metadata *>(buffer);
        for (; FAN_EVENT_OK(event, left); event = FAN_EVENT_NEXT(event, left))
            if (event->fd >= 0)
                decide(*event);
    }

    void decide(const fanotify_event_metadata &event) {
        Fd fd(event.fd);
        opens_++;
        if (event.pid == ::getpid())
            return allow(fd.get());
        char path[PATH_MAX];
        std::string link = "/proc/self/fd/" + std::to_string(fd.get());
        ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
        std::string name(path, length > 0 ? static_cast<size_t>(length) : 0);
        struct stat status;
        if (!has_prefix(plain_basename(name), prefixes_) || ::fstat(fd.get(), &status) != 0)
            return allow(fd.get());
        // Others look in through /proc: two recorders would wait for each other.
        std::string from = mount_namespace(event.pid);
        if (!from.empty() && from != namespace_)
            return allow(fd.get());
        hold(std::move(fd), name, status, event.pid);
    }

    void hold(Fd fd, const std::string &path, const struct stat &status, pid_t pid) {
        std::lock_guard<std::mutex> guard(lock_);
        if (waiting_.size() >= kMaxWaiting) {
            full_++;
            return allow(fd.get());
        }
        uint64_t token = ++tokens_;
        held_++;
        auto file = std::make_shared<Fd>(std::move(fd));
        fresh_.push_back(
            {token, path, file, status.st_dev, status.st_ino, pid, clock_ns(CLOCK_BOOTTIME)});
        waiting_[token] = {file, clock_ns(CLOCK_MONOTONIC) + deadline_ns_};
        signal_eventfd(ready_);
    }

    void allow(int fd) {
        fanotify_response response{fd, FAN_ALLOW};
        while (::write(group_.get(), &response, sizeof(response)) < 0 && errno == EINTR) {
        }
    }

    void answer(std::map<uint64_t, Waiting>::iterator waiting) {
        allow(waiting->second.file->get());
        waiting_.erase(waiting);
    }

    const std::vector<std::string> prefixes_;
    const uint64_t deadline_ns_;
    const std::string namespace_;
    Fd ready_, wake_, group_, mountinfo_, root_;
    std::mutex lock_;
    std::map<uint64_t, Waiting> waiting_;
    std::vector<Held> fresh_;
    std::map<std::string, std::string> unmarked_;
    uint64_t tokens_ = 0, held_ = 0, late_ = 0, full_ = 0;
    std::atomic<uint64_t> opens_{0};
    size_t marked_ = 0;
    int mark_error_ = 0;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

} // namespace
} // namespace igsdk

void register_hold(py::module_ &m) {
    using namespace igsdk;
    using Released = py::call_guard<py::gil_scoped_release>;
    py::class_<Held>(m, "Held")
        .def_readonly("token", &Held::token)
        .def_property_readonly("path", [](const Held &held) { return file_text(held.path); })
        .def("fileno", [](const Held &held) { return held.file->get(); })
        .def_readonly("device", &Held::device)
        .def_readonly("inode", &Held::inode)
        .def_readonly("pid", &Held::pid)
        .def_readonly("time_ns", &Held::time_ns);
    py::class_<OpenHold>(m, "OpenHold")
        .def(py::init<pid_t, std::vector<std::string>, double>(), py::arg("pid"),
             py::arg("prefixes") = std::vector<std::string>{"libcuda.so"},
             py::arg("deadline") = 2.0)
        .def("fileno", &OpenHold::fileno)
        .def("take", &OpenHold::take)
        .def("release", &OpenHold::release, py::arg("token"))
        .def("counts", &OpenHold::counts)
        .def("unmarked",
             [](OpenHold &hold) {
                 py::list result;
                 for (const auto &[point, why] : hold.unmarked())
                     result.append(py::make_tuple(file_text(point), why));
                 return result;
             })
        .def("close", &OpenHold::close, Released());
}
