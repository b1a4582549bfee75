package e2e

import "github.com/felixlike/felixlike/model"

// threeNodes is the cluster of these tests: x/a and x/b on node1, x/c on node2,
// x/d on node3. All serve port 80.
const threeNodes = `
{kind: Node, metadata: {name: node1}}
---
{kind: Node, metadata: {name: node2}}
---
{kind: Node, metadata: {name: node3}}
---
{kind: Pod, metadata: {namespace: x, name: a, labels: {pod: a}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 81}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: b, labels: {pod: b}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: c, labels: {pod: c}}, spec: {nodeName: node2, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: d, labels: {pod: d}}, spec: {nodeName: node3, containers: [{name: c, ports: [{containerPort: 80}]}]}}
`

// onlyFromC isolates x/a but for x/c on port 80.
const onlyFromC = `
{kind: NetworkPolicy, metadata: {namespace: x, name: only-from-c}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}]}}
`

func pod(name string) model.PodID { return model.PodID{Namespace: "x", Name: name} }
