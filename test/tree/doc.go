// Package tree tests a tree of boxes: rocastd processes in network namespaces, groups from
// hand-written group files, soft RDMA endpoints as hosts, bridges and plain routers between the
// boxes.
package tree
