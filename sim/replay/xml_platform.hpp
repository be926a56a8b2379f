// SimGrid platform files (XML) as clusters: a host is a GPU, links and routes are those that SimGrid finds.
#pragma once

#include <string>

#include "platforms/cluster.hpp"

namespace orrery {

// Whether a cluster argument is a SimGrid platform, by its name: it ends in ".xml".
bool is_xml_platform(const std::string& path);

// Host properties: `gpu` (a catalog name, required), `node` (hosts with the same text are one node; without
// it a host is a node of its own), `memory` (of the GPU, in place of the catalog's). Nodes with equal GPUs
// and as many of them make a group; hosts and nodes are in the natural order of their names (host2 before
// host10). Speeds and cores of hosts are not used: the catalog says what a GPU does. Throws InputError for a
// file SimGrid cannot load, more than 1,024 hosts, links that are not shared, and routes that are missing or
// longer than 13 links. SimGrid loads the file in a forked child: call it before any thread exists.
ClusterSpec read_xml_platform(const std::string& path);

}  // namespace orrery
