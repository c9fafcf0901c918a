// Package branches tests groups that several rocastd set up among themselves, in network namespaces
// and with real packets. The groups are created on the first box only.
package branches
