// Package drivertest has what tests feed a driver with, and stages and a backend of memory that it programs. It does not import the driver, so the
// driver's own tests use it too; moduletest runs a driver for the tests of modules.
package drivertest
