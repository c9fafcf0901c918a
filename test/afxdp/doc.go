// Package afxdp holds the stories of the data path on real AF_XDP ports. Soft RDMA endpoints in
// network namespaces stand around a switch that is opened as the daemon opens it. There is no
// daemon.
package afxdp
