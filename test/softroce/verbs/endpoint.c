#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "report.h"

enum {
	PORT = 1,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	MAX_READS = 16, /* outstanding READs and atomics in each direction */
	HOP_LIMIT = 64,
};

static bool parse_gid(const char *ip, union ibv_gid *gid)
{
	struct in_addr v4;

	if (inet_pton(AF_INET6, ip, gid->raw) == 1)
		return true;
	if (inet_pton(AF_INET, ip, &v4) != 1)
		return false;
	memset(gid->raw, 0, 10);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &v4, sizeof(v4));
	return true;
}

/* A guest has one device that can be opened. */
static struct ibv_context *open_device(void)
{
	struct ibv_context *device = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (struct ibv_device **d = list; d && *d && !device; d++)
		device = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	return device;
}

static bool find_gid_index(struct endpoint *ep)
{
	struct ibv_port_attr port;

	if (ibv_query_port(ep->device, PORT, &port))
		return false;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid gid;

		if (ibv_query_gid(ep->device, PORT, i, &gid) == 0 && memcmp(&gid, &ep->gid, sizeof(gid)) == 0) {
			ep->gid_index = (uint8_t)i;
			return true;
		}
	}
	return false;
}

static bool map_region(struct endpoint *ep, const struct command *options)
{
	void *wish = (void *)(uintptr_t)number_field(options, "va", 0);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (wish ? MAP_FIXED_NOREPLACE : 0);

	ep->region_bytes = number_field(options, "bytes", 2 << 20);
	ep->region = mmap(wish, ep->region_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	return ep->region != MAP_FAILED;
}

static struct ibv_qp *create_qp(const struct endpoint *ep)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = SEND_DEPTH, .max_recv_wr = RECV_DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return ibv_create_qp(ep->pd, &attr);
}

/*
 * All rxe devices count QPNs and keys from the same start. Spare QPs and MRs make the numbers of
 * hosts different.
 */
static bool use_up_numbers(const struct endpoint *ep, uint64_t spare)
{
	for (; spare > 0; spare--)
		if (!create_qp(ep) || !ibv_reg_mr(ep->pd, ep->region, ep->region_bytes, ACCESS))
			return false;
	return true;
}

static bool create_objects(struct endpoint *ep, const struct command *options)
{
	ep->pd = ibv_alloc_pd(ep->device);
	ep->channel = ibv_create_comp_channel(ep->device);
	if (!ep->pd || !ep->channel)
		return false;
	ep->cq = ibv_create_cq(ep->device, SEND_DEPTH + RECV_DEPTH, NULL, ep->channel, 0);
	if (!ep->cq || ibv_req_notify_cq(ep->cq, 0) || !use_up_numbers(ep, number_field(options, "spare", 0)))
		return false;
	ep->mr = ibv_reg_mr(ep->pd, ep->region, ep->region_bytes, ACCESS);
	ep->qp = create_qp(ep);
	return ep->mr && ep->qp;
}

static int to_init(struct endpoint *ep)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = ACCESS };

	return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

bool open_endpoint(struct endpoint *ep, const struct command *options)
{
	const char *ip = text_field(options, "ip", "");

	*ep = (struct endpoint){
		.psn = (uint32_t)number_field(options, "psn", 0),
	};
	if (!parse_gid(ip, &ep->gid)) {
		report_error("ip=%s is no IP address", ip);
		return false;
	}
	ep->device = open_device();
	if (!ep->device) {
		report_error("no RDMA device can be opened");
		return false;
	}
	if (!find_gid_index(ep)) {
		report_error("the RDMA device has no GID for %s", ip);
		return false;
	}
	if (!map_region(ep, options) || !create_objects(ep, options) || to_init(ep)) {
		report_errno("set up the endpoint", errno);
		return false;
	}
	return true;
}

void report_local(const struct endpoint *ep)
{
	char gid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, ep->gid.raw, gid, sizeof(gid));
	report("local", ",\"qpn\":%u,\"psn\":%u,\"rkey\":%u,\"va\":%" PRIuPTR ",\"bytes\":%zu,\"gid\":\"%s\",\"gid_index\":%u",
	       ep->qp->qp_num, ep->psn, ep->mr->rkey, (uintptr_t)ep->region, ep->region_bytes, gid, ep->gid_index);
}

static bool mtu_enum(uint64_t bytes, enum ibv_mtu *mtu)
{
	for (int code = IBV_MTU_256; code <= IBV_MTU_4096; code++) {
		if (bytes == 128u << code) {
			*mtu = (enum ibv_mtu)code;
			return true;
		}
	}
	return false;
}

static int to_rtr(struct endpoint *ep, const struct command *peer, const union ibv_gid *gid, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = (uint32_t)number_field(peer, "qpn", 0),
		.rq_psn = (uint32_t)number_field(peer, "psn", 0),
		.max_dest_rd_atomic = MAX_READS,
		.min_rnr_timer = (uint8_t)number_field(peer, "rnr_timer", 12),
		.ah_attr = { .is_global = 1, .port_num = PORT,
			     .grh = { .dgid = *gid, .sgid_index = ep->gid_index, .hop_limit = HOP_LIMIT } },
	};

	return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct endpoint *ep, const struct command *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = ep->psn,
		.timeout = (uint8_t)number_field(peer, "timeout", 14),
		.retry_cnt = (uint8_t)number_field(peer, "retry", 7),
		.rnr_retry = (uint8_t)number_field(peer, "rnr_retry", 7),
		.max_rd_atomic = MAX_READS,
	};

	return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void connect_endpoint(struct endpoint *ep, const struct command *peer)
{
	union ibv_gid gid;
	enum ibv_mtu mtu;
	int error;

	if (!parse_gid(text_field(peer, "ip", ""), &gid) || !mtu_enum(number_field(peer, "mtu", 1024), &mtu)) {
		report_error("connect needs ip= of the peer and mtu= 256, 512, ... 4096");
		return;
	}
	if ((error = to_rtr(ep, peer, &gid, mtu)))
		report_errno("bring the QP to RTR", error);
	else if ((error = to_rts(ep, peer)))
		report_errno("bring the QP to RTS", error);
	else
		report_state(ep);
}

void fence_endpoint(struct endpoint *ep, const struct command *command)
{
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_LOCAL_WRITE };
	struct ibv_mr *old = ep->mr;
	int error;

	if (strcmp(text_field(command, "by", "key"), "qp") == 0) {
		error = ibv_modify_qp(ep->qp, &attr, IBV_QP_ACCESS_FLAGS);
	} else {
		ep->mr = ibv_reg_mr(ep->pd, ep->region, ep->region_bytes, ACCESS);
		error = ep->mr ? ibv_dereg_mr(old) : errno;
	}
	if (error)
		report_errno("fence", error);
	else
		report("fenced", ",\"rkey\":%u", ep->mr->rkey);
}

void report_state(const struct endpoint *ep)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = ibv_query_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init);

	if (error)
		report_errno("query the QP", error);
	else
		report("state", ",\"state\":\"%s\",\"sq_psn\":%u,\"rq_psn\":%u",
		       attr.qp_state <= IBV_QPS_ERR ? names[attr.qp_state] : "?", attr.sq_psn, attr.rq_psn);
}
