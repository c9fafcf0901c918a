// Package copies kills rocast-cp and its box while files are copied: the source, a receiver or
// rocastd, whenever it is. Who is started again with --resume gets the rest, until all hosts have
// what the source has.
//
// ROCAST_CP_KILLS says in how many runs somebody is killed, and ROCAST_CP_SEED is the seed of the
// first one: `ROCAST_CP_KILLS=200 go test ./test/copies -v -timeout 3h`.
package copies
