// SPDX-License-Identifier: Apache-2.0
#include "debug_files.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <zlib.h>

namespace igsdk {
namespace {

constexpr char kDebugFolder[] = "/usr/lib/debug";
constexpr size_t kMaxLink = 4096;
// A file of that size takes a second to check; build ids serve larger ones.
constexpr uint64_t kMaxChecked = 512 << 20;

// Opens a path as seen from `root`, whose links must not lead out of it. A pipe or a
// device at that place is opened without waiting and refused.
std::shared_ptr<const Bytes> open_in(const std::string &root, const std::string &path) {
    open_how how{};
    how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    how.resolve = root.empty() ? 0 : RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    const std::string from = root.empty() ? "/" : root;
    Fd folder(::open(from.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder)
        return nullptr;
    long fd = ::syscall(SYS_openat2, folder.get(), path.c_str(), &how, sizeof(how));
    if (fd < 0 && errno == ENOSYS && root.empty())
        fd = ::open(path.c_str(), static_cast<int>(how.flags));
    return FileBytes::of(Fd(static_cast<int>(fd)));
}

std::shared_ptr<const Bytes> open_with_id(const std::string &root, const std::string &path,
                                          const std::string &id) {
    auto bytes = open_in(root, path);
    return bytes && ElfSections(bytes).build_id() == id ? bytes : nullptr;
}

std::string environment(const char *name) {
    const char *value = ::getenv(name);
    return value && *value == '/' ? value : "";
}

std::vector<std::string> caches() {
    std::vector<std::string> folders;
    for (auto [name, below] :
         {std::pair{"DEBUGINFOD_CACHE_PATH", ""}, std::pair{"XDG_CACHE_HOME", "/debuginfod_client"},
          std::pair{"HOME", "/.cache/debuginfod_client"},
          std::pair{"HOME", "/.debuginfod_client_cache"}}) {
        std::string folder = environment(name);
        if (!folder.empty())
            folders.push_back(folder + below);
    }
    return folders;
}

// The roots to look into: the process's, then ours. What is found is checked, so
// that it doesn't matter whose it is.
std::vector<std::string> roots(const DebugSearch &search) {
    if (search.root.empty() || search.root == "/")
        return {""};
    return {search.root, ""};
}

std::shared_ptr<const Bytes> find_by_id(const std::string &id, const DebugSearch &search) {
    if (id.size() < 4)
        return nullptr;
    std::string path = "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug";
    for (const std::string &root : roots(search))
        if (auto bytes = open_with_id(root, kDebugFolder + path, id))
            return bytes;
    for (const std::string &cache : caches())
        if (auto bytes = open_with_id("", cache + "/" + id + "/debuginfo", id))
            return bytes;
    return nullptr;
}

bool has_checksum(const Bytes &bytes, uint32_t wanted) {
    if (bytes.size() > kMaxChecked)
        return false;
    std::vector<unsigned char> piece(1 << 20);
    uLong sum = crc32(0, nullptr, 0);
    for (uint64_t at = 0; at < bytes.size();) {
        size_t n = bytes.read(at, piece.data(), piece.size());
        if (n == 0)
            return false;
        sum = crc32(sum, piece.data(), static_cast<uInt>(n));
        at += n;
    }
    return sum == wanted;
}

struct Link {
    std::string name;
    std::vector<char> rest; // behind the name
};

std::optional<Link> read_link(const ElfSections &file, const char *section) {
    const Elf64_Shdr *header = file.find(section);
    auto content = header ? file.content(*header, kMaxLink) : std::nullopt;
    if (!content)
        return std::nullopt;
    auto end = std::find(content->begin(), content->end(), '\0');
    if (end == content->begin() || end == content->end())
        return std::nullopt;
    return Link{std::string(content->begin(), end), {end + 1, content->end()}};
}

std::string folder_of(const std::string &path) { return path.substr(0, path.rfind('/')); }

// Beside the file, below it and in the tree of debug files, as GDB has it.
std::vector<std::string> places(const std::string &path, const std::string &name) {
    std::string folder = folder_of(path);
    return {folder + "/" + name, folder + "/.debug/" + name, kDebugFolder + folder + "/" + name};
}

std::shared_ptr<const Bytes> find_by_link(const ElfSections &file, const DebugSearch &search) {
    auto link = read_link(file, ".gnu_debuglink");
    if (!link || link->name.find('/') != std::string::npos || search.path.compare(0, 1, "/") != 0)
        return nullptr;
    uint32_t sum;
    size_t skipped = (4 - (link->name.size() + 1) % 4) % 4;
    if (link->rest.size() < skipped + sizeof(sum))
        return nullptr;
    std::memcpy(&sum, link->rest.data() + skipped, sizeof(sum));
    std::string id = file.build_id();
    for (const std::string &root : roots(search))
        for (const std::string &place : places(search.path, link->name)) {
            auto bytes = open_in(root, place);
            // The id says the same as the checksum, without reading the whole file.
            if (bytes &&
                ((!id.empty() && ElfSections(bytes).build_id() == id) || has_checksum(*bytes, sum)))
                return bytes;
        }
    return nullptr;
}

} // namespace

std::shared_ptr<const Bytes> find_debug_file(const ElfSections &file, const DebugSearch &search) {
    if (auto bytes = find_by_id(file.build_id(), search))
        return bytes;
    return find_by_link(file, search);
}

std::shared_ptr<const Bytes> find_shared_debug_file(const ElfSections &debug,
                                                    const DebugSearch &search) {
    auto link = read_link(debug, ".gnu_debugaltlink");
    if (!link)
        return nullptr;
    std::string id =
        hex(reinterpret_cast<const unsigned char *>(link->rest.data()), link->rest.size());
    if (auto bytes = find_by_id(id, search))
        return bytes;
    // Relative names begin where the debug file lies: in a folder of .build-id.
    bool whole = link->name[0] == '/';
    std::string base = std::string(kDebugFolder) + "/.build-id/00/";
    for (const std::string &root : roots(search))
        if (auto bytes = open_with_id(root, whole ? link->name : base + link->name, id))
            return bytes;
    return nullptr;
}

} // namespace igsdk
