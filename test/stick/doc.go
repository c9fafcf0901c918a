// Package stick tests boxes that have one port each, on a switch that no box owns: data arrive and
// copies leave by the same port. Two such boxes may stand by for each other.
package stick
