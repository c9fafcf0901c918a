// Package config reads the daemon's config file. packaging/rocastd.yaml explains the file to its users.
//
// [Parse] checks all that the text alone can tell, and names the line and the mend. Whether the interfaces have what the config
// asks for shows when they are opened.
package config
