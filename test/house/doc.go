// Package house holds the tests about the tree itself: who may import whom.
package house
