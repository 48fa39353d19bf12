package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"remora/test/process"
)

const nodeDir = "testdata/node"

// installOnce installs the SDKs for Node, unless the versions of package-lock.json are installed.
var installOnce = sync.OnceValue(func() error {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: apt-get install nodejs npm (20 or newer), or make deps", tool)
		}
	}
	if exec.Command("npm", "ls", "--prefix", nodeDir).Run() == nil {
		return nil
	}
	if out, err := exec.Command("npm", "ci", "--prefix", nodeDir).CombinedOutput(); err != nil {
		return fmt.Errorf("install the SDKs for node (npm ci --prefix test/e2e/%s): %w\n%s", nodeDir, err, out)
	}
	return nil
})

// nodeOptions are the options of testdata/node/run.mjs.
type nodeOptions struct {
	BaseURL string   `json:"baseURL"`
	Session bool     `json:"session"`
	Only    []string `json:"only,omitempty"`
	Control string   `json:"control,omitempty"`
}

// record is the result of one scenario with one SDK.
type record struct {
	Tries  []try `json:"tries"`
	Result any   `json:"result"`
	Thrown any   `json:"thrown"`
}

// try is one HTTP exchange of the SDK.
type try struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	// Own are the headers that Remora adds.
	Own map[string]string `json:"own"`
}

func runNode(t *testing.T, o nodeOptions) map[string]record {
	t.Helper()
	if err := installOnce(); err != nil {
		t.Fatal(err)
	}
	arg, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(nodeDir, "run.mjs"), string(arg))
	process.DieWithParent(cmd)
	timer := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run the scenarios for node: %v\n%s", err, stderr.String())
	}
	var records map[string]record
	if err := json.Unmarshal(out, &records); err != nil {
		t.Fatalf("read what the scenarios for node printed: %v", err)
	}
	return records
}
