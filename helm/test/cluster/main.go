// Command cluster is a Kubernetes control plane in one binary, so that it is linked once: etcd, the real API server,
// controller manager and scheduler, and a simulated node. install.sh of the folder above starts each of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cluster etcd|apiserver|controllers|scheduler|node ...")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{filepath.Base(os.Args[0])}, os.Args[2:]...)
	os.Exit(run(part, os.Args[1:]))
}

func run(part string, args []string) int {
	if part == "etcd" {
		etcdmain.Main(append([]string{"etcd"}, args...)) // ends the process itself
		return 0
	}
	commands := map[string]func() *cobra.Command{
		"apiserver":   apiserver.NewAPIServerCommand,
		"controllers": controllers.NewControllerManagerCommand,
		"scheduler":   func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if command, ok := commands[part]; ok {
		return cli.Run(command())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case part == "node" && len(args) == 2:
		err = runNode(ctx, args[0], args[1])
	default:
		err = errors.New("want node KUBECONFIG NAME")
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "cluster "+part+":", err)
		return 1
	}
	return 0
}
