// Package config reads the daemon's config file. packaging/rocastd.yaml explains the file to its
// users.
//
// [Parse] checks everything that needs only the text; its errors name the line and the mend.
// Whether the interfaces support what the config asks for is checked when they are opened.
package config
