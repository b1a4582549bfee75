package service_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/service"
	"github.com/felixlike/felixlike/model"
)

// The module gives the engine each object, and hands the updates to the managers.
func ExampleEngine_Flush() {
	e := service.New("here")
	e.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}},
	})
	name, port, here := "sql", int32(5432), "here"
	e.SetEndpointSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.10.0.2"}, NodeName: &here}, {Addresses: []string{"10.10.1.2"}}},
	})
	for _, u := range e.Flush() {
		switch u := u.(type) {
		case model.ServicePortUpdate:
			fmt.Println(u.Port.ID)
			for _, f := range u.Port.Frontends {
				fmt.Println(f.Addr, "leads to", f.Endpoints[0], "and", f.Endpoints[1])
			}
		case model.ServiceHealthUpdate:
			fmt.Println("ports for health checks:", len(u.All))
		}
	}
	fmt.Println("nothing has changed:", len(e.Flush()))
	// Output:
	// shop/db:5432/tcp
	// 10.96.0.7 leads to 10.10.0.2:5432 and 10.10.1.2:5432
	// ports for health checks: 0
	// nothing has changed: 0
}
