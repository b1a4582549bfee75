// Package cluster runs commands of felixctl in the agents' pods of a cluster, by kubectl
// exec. A command for one node is passed on as it is. Some commands also answer for all
// nodes: they ask each agent for JSON and print one summary.
package cluster
