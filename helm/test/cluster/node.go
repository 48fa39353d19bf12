package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// runNode is a kubelet without containers: it registers a healthy node, and reports every pod that the scheduler puts
// there as running and ready, or as succeeded if the pod runs to its end, until ctx ends. Like a real kubelet it checks
// first that the ConfigMaps and Secrets exist and have the keys: a chart that names a wrong one hangs here as it would
// there.
func runNode(ctx context.Context, kubeconfig, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n := &node{client: client, name: name}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := n.step(ctx); err != nil && ctx.Err() == nil {
			fmt.Println("node:", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

type node struct {
	client kubernetes.Interface
	name   string
	beat   time.Time
	count  int // of pods started, for their addresses
}

func (n *node) step(ctx context.Context) error {
	if time.Since(n.beat) > 5*time.Second {
		if err := n.heartbeat(ctx); err != nil {
			return err
		}
		n.beat = time.Now()
	}
	pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if err := n.pod(ctx, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) heartbeat(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	have, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			"kubernetes.io/hostname": n.name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z-" + n.name,
		}}}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	now := metav1.Now()
	have.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("50"),
	}
	have.Status.Allocatable = have.Status.Capacity
	have.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	_, err = nodes.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return err
}

func (n *node) pod(ctx context.Context, pod *corev1.Pod) error {
	pods := n.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		err := pods.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if pod.Status.Phase != corev1.PodPending {
		return nil
	}
	if err := n.sources(ctx, pod); err != nil {
		return fmt.Errorf("pod %s waits: %w", pod.Name, err)
	}
	n.count++
	ends := pod.Spec.RestartPolicy == corev1.RestartPolicyNever
	now, yes := metav1.Now(), true
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
	pod.Status.PodIP = fmt.Sprintf("10.99.%d.%d", n.count/250, n.count%250+1)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	for _, c := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true, Started: &yes}
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		if ends {
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: now, FinishedAt: now, Reason: "Completed"}}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	if ends {
		pod.Status.Phase = corev1.PodSucceeded
	}
	_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// sources looks for what the pod takes from ConfigMaps, Secrets and claims.
func (n *node) sources(ctx context.Context, pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		var err error
		switch {
		case v.ConfigMap != nil:
			_, err = n.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		case v.Secret != nil:
			_, err = n.secret(ctx, pod.Namespace, v.Secret.SecretName)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := n.environment(ctx, pod.Namespace, c); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) environment(ctx context.Context, namespace string, c corev1.Container) error {
	for _, from := range c.EnvFrom {
		if from.SecretRef == nil {
			continue
		}
		if _, err := n.secret(ctx, namespace, from.SecretRef.Name); err != nil {
			return err
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		ref := e.ValueFrom.SecretKeyRef
		secret, err := n.secret(ctx, namespace, ref.Name)
		if err != nil {
			return err
		}
		if _, ok := secret.Data[ref.Key]; !ok {
			return fmt.Errorf("secret %s has no key %s", ref.Name, ref.Key)
		}
	}
	return nil
}

func (n *node) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return n.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}
