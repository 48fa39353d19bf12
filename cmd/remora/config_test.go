package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"remora"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/view"
	"remora/providers"
	"remora/providers/retry"
	"remora/proxy"
)

// loadFile loads a file of one line. Errors are without their line number.
func loadFile(t *testing.T, file string, environ ...string) (Config, error) {
	t.Helper()
	path := t.TempDir() + "/config.yaml"
	writeFile(t, path, file)
	c, err := sources{file: path, environ: environ}.load()
	if found, ok := errors.AsType[problems](err); ok {
		for i := range found {
			found[i].text = strings.TrimSuffix(found[i].text, " (line 1)")
		}
	}
	return c, err
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := sources{}.load()
	if err != nil {
		t.Fatal(err)
	}
	want := proxy.Options{
		Listen:         "127.0.0.1:8080",
		MaxBody:        65 << 20, // a part of OpenAI's uploads, 64 MiB, and its form
		MaxHeader:      16 << 10,
		MaxConnections: 65536,
		ReadTimeout:    time.Minute,
		IdleTimeout:    2 * time.Minute,
		WriteTimeout:   time.Minute,
		ShutdownGrace:  30 * time.Second,
		Upstream: providers.ClientOptions{
			DialTimeout: 10 * time.Second, ResponseHeaderTimeout: 10 * time.Minute, StreamIdleTimeout: 5 * time.Minute,
			IdleConnTimeout: 10 * time.Second, MaxIdleConns: 1024, MaxHeader: 16 << 10,
		},
		Session: proxy.SessionOptions{
			Headers: []string{
				"x-session-id", "session-id", "session_id", "x-claude-code-session-id", "x-session-affinity",
				"x-litellm-session-id", "helicone-session-id", "x-sm-conversation-id", "x-openwebui-chat-id",
				"x-kilocode-taskid", "x-client-session-id", "cf-aig-session-id", "x-conversation-id", "thread-id",
				"conversation_id",
			},
			// A conversation that upstream keeps is not a request for memory, and metadata is for readers upstream.
			Fields: []string{"session_id"},
			ResourceHeaders: []string{
				"x-resource-id", "x-user-id", "x-sm-user-id", "helicone-user-id", "x-openwebui-user-id",
				"x-litellm-end-user-id",
			},
			ResourceFields: []string{"user", "safety_identifier", "metadata.user_id"},
			CredentialHeaders: []string{
				"authorization", "x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key",
				"x-litellm-api-key", "x-portkey-api-key", "x-bf-vk", "cf-aig-authorization", "helicone-auth",
			},
			Tenancy: proxy.TenancyCredential,
			History: "auto",
		},
	}
	if diff := cmp.Diff(want, c.Server); diff != "" {
		t.Error("server and session (-want +config.yaml)", diff)
	}
	got := c.memory(nil, &modelSet{})
	got.Now, got.Lost, got.Context, got.Price = nil, nil, nil, nil
	cache := view.DefaultPromptCache()
	if diff := cmp.Diff(memory.Options{
		CommitWait: 250 * time.Millisecond, ReadWait: 250 * time.Millisecond, OpenDelay: 20 * time.Millisecond,
		RetryDelay: 500 * time.Millisecond, OnStoreError: "open", IndexBytes: 256 << 20,
		Shape: memory.Shape{
			Window: &view.Window{MaxTokens: 64000, EvictBatch: 1, EvictShare: 0.5, InFlight: "window"}, PromptCache: &cache,
		},
	}, got); diff != "" {
		t.Error("memory (-want +got)", diff)
	}
	if c.Store.URL.Reveal() != "bolt:remora.db" || c.Store.Spool.Dir != "spool" || c.Store.Spool.MaxBytes != 1<<30 {
		t.Errorf("got %+v", c.Store)
	}
	if diff := cmp.Diff([]providers.Options{{Name: "openai", Kind: "openai", Messages: "auto"}}, c.upstreams()); diff != "" {
		t.Error(diff)
	}
}

func TestListenIsLocalUnlessAnOperatorSaysSo(t *testing.T) {
	t.Parallel()
	c, err := sources{}.load()
	if err != nil || !strings.HasPrefix(c.Server.Listen, "127.0.0.1:") {
		t.Errorf("got %s, %v", c.Server.Listen, err)
	}
}

func TestLayers(t *testing.T) {
	t.Parallel()
	f := func(layers string, want *view.Window) {
		t.Helper()
		c, err := loadFile(t, "memory: {layers: "+layers+"}", "N=12")
		if err != nil {
			t.Errorf("%s: %v", layers, err)
		}
		if diff := cmp.Diff(want, c.Memory.layers.window); diff != "" {
			t.Error(layers, diff)
		}
	}
	f("[]", nil)
	f("[{kind: history_window, max_tokens: 20000}]", &view.Window{MaxTokens: 20000, EvictBatch: 1, EvictShare: 0.5, InFlight: "keep"})
	f("[{kind: history_window, max_items: 80, max_share: 0.25, evict_share: 0.2, idle_reset: 10m}]", &view.Window{
		MaxItems: 80, EvictBatch: 40, MaxShare: 0.25, EvictShare: 0.2, IdleReset: 10 * time.Minute, InFlight: "keep",
	})
	f("[{kind: history_window}]", &view.Window{MaxItems: 40, EvictBatch: 20, EvictShare: 0.5, InFlight: "keep"})
	f("[{kind: history_window, max_items: 2}]", &view.Window{MaxItems: 2, EvictBatch: 1, EvictShare: 0.5, InFlight: "keep"})
	f("[{kind: history_window, max_items: '${N}', evict_batch: 1, in_flight: window, max_expansion: 4}]",
		&view.Window{MaxItems: 12, EvictBatch: 1, EvictShare: 0.5, InFlight: "window", MaxExpansion: 4})
}

// TestAMisspelledKeyIsOneProblem: that the key that was meant has no value is a consequence, and not reported as well.
func TestAMisspelledKeyIsOneProblem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"memory: {layers: [{kind: steering, rules: [{id: r, applies_to: [before_tool_call], actoin: deny}]}]}": "memory.layers[0].rules[0].actoin: unknown key, did you mean action?",
		"memory: {layers: [{kind: semantic_recall, embeddings: {modell: m}}]}":                                 "memory.layers[0].embeddings.modell: unknown key, did you mean model?",
		"providers: [{nam: a, kind: openai}]":                                                                  "providers[0].nam: unknown key, did you mean name?",
	} {
		_, err := loadFile(t, text)
		if got := fmt.Sprint(err); !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestEmbeddingsProblems: errors about an embedding model name its keys.
func TestEmbeddingsProblems(t *testing.T) {
	t.Parallel()
	f := func(layers, want string) {
		t.Helper()
		_, err := loadFile(t, "memory: {layers: ["+layers+"]}")
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s:\ngot  %v\nwant %s", layers, got, want)
		}
	}
	f("{kind: semantic_recall, embeddings: {model: m}}", "<nil>")
	f("{kind: semantic_recall, embeddings: {provider: openai, model: m, dimensions: 256, timeout: 900ms}}", "<nil>")
	f("{kind: semantic_recall, embeddings: {provider: openai}}", "memory.layers[0].embeddings.model: want the name of a model")
	f("{kind: semantic_recall, embeddings: {provider: x, model: m}}", "memory.layers[0].embeddings.provider: want the name of one of providers")
	f("{kind: semantic_recall, embeddings: {model: m, dimension: 3}}", "memory.layers[0].embeddings.dimension: unknown key, did you mean dimensions?")
	f("{kind: semantic_recall, embeddings: {model: m, timeout: 1s}, timeouts: {recall: 500ms}}",
		"memory.layers[0].embeddings.timeout: want less than the layer's timeouts.recall, 500ms, have 1s")
	f("{kind: semantic_recall, embeddings: {file: /none.vec}}", "memory.layers[0].embeddings.file: stat /none.vec: no such file or directory")
	f("{kind: semantic_recall, embeddings: {file: config.go}}", "memory.layers[0].embeddings.file: config.go: line 1: want a word and its numbers")
	f("{kind: semantic_recall, embeddings: {model: m}}, {kind: semantic_recall, id: two, embeddings: {model: m}}",
		"memory.layers[1].embeddings: memory.layers[0] has embeddings already, and all layers search by the same")
}

// TestExamplesOfMappings: the examples in config.yaml that are one element of a list can be switched on by removing their #.
func TestExamplesOfMappings(t *testing.T) {
	t.Parallel()
	sample, examples := string(remora.Config), 0
	for line := range strings.Lines(sample) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#- {") {
			continue
		}
		examples++
		file := strings.Replace(sample, line, strings.Replace(line, "#", "", 1), 1)
		if _, err := loadFile(t, file); err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
	if examples == 0 {
		t.Error("config.yaml has no example of a mapping in a list")
	}
}

// TestModelsWithoutProvider: a model that no provider claims needs the name of its provider.
func TestModelsWithoutProvider(t *testing.T) {
	t.Parallel()
	for layer, key := range map[string]string{
		"{kind: semantic_recall, embeddings: {model: m}}": "embeddings", "{kind: observational_memory, model: {model: m}}": "model",
	} {
		_, err := loadFile(t, "providers: [{name: up, kind: openai, models: ['gpt*']}]\nmemory: {layers: ["+layer+"]}")
		want := "memory.layers[0]." + key + `.provider: want the name of one of providers, since none takes the model "m" by itself`
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %s", layer, err, want)
		}
	}
}

func TestPolicyProblems(t *testing.T) {
	t.Parallel()
	f := func(policy, want string) {
		t.Helper()
		_, err := loadFile(t, "memory: {policy: "+policy+"}")
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s:\ngot  %v\nwant %s", policy, got, want)
		}
	}
	f("{overflow: summarize}", "<nil>")
	f("{overflow: summarize, overflow_model: {model: m}}", "<nil>")
	f("{overflow: summarize, overflow_model: {provider: openai, model: m}}", "<nil>")
	f("{overflow_model: {model: m}}", "memory.policy.overflow_model: has no use unless overflow is summarize")
	f("{overflow: summarize, overflow_model: {provider: openai}}", "memory.policy.overflow_model.model: want the name of a model")
	f("{overflow: summarize, overflow_model: {provider: x, model: m}}",
		"memory.policy.overflow_model.provider: want the name of one of providers")
	f("{overflow: summarise}", `memory.policy.overflow: want "truncate", "sliding_window", "summarize", "fifo", "turns" or "priority", have "summarise"`)
	f("{overflow: fifo, min_history_turns: 3, tool_result_max_tokens: 2000}", "<nil>")
	f("{overflow: turns, window_turns: 0}", `memory.policy.window_turns: want 1 or more pairs with overflow "turns", have 0`)
	f("{min_history_turns: -1}", "memory.policy.min_history_turns: want 0 or more pairs, have -1")
	f("{tool_result_max_tokens: 5}", "memory.policy.tool_result_max_tokens: want 0 (no limit) or at least 32 tokens, have 5")
}

// TestOneSummary: the policy and a layer do not both summarise.
func TestOneSummary(t *testing.T) {
	t.Parallel()
	for manager, want := range map[string]string{
		"": "<nil>",
		", strategy: sliding_window_with_summary": "memory.policy.overflow: want another one than summarize, since memory.layers[0] summarises what views leave out",
		", enable_summarization: true":            "memory.policy.overflow: want another one than summarize, since memory.layers[0] summarises what views leave out",
	} {
		_, err := loadFile(t, "memory: {policy: {overflow: summarize}, layers: [{kind: history_manager"+manager+"}]}")
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s:\ngot  %v\nwant %s", manager, got, want)
		}
	}
}

// TestMinHistoryTurns: policies that prune by turns keep three by default.
func TestMinHistoryTurns(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{
		"{}": 0, "{overflow: truncate}": 0, "{overflow: summarize}": 0, "{overflow: priority}": 0,
		"{overflow: fifo}": 3, "{overflow: turns}": 3,
		"{overflow: fifo, min_history_turns: 0}": 0, "{overflow: turns, min_history_turns: 5}": 5, "{min_history_turns: 2}": 2,
	} {
		c, err := loadFile(t, "memory: {policy: "+policy+"}\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Memory.Policy.policy().MinTurns; got != want {
			t.Errorf("%s: %d, want %d", policy, got, want)
		}
	}
}

// TestSchemaAsMapping: the schema of a tool may be a mapping, whose keys keep their capitals.
func TestSchemaAsMapping(t *testing.T) {
	const layers = `[{"kind": "http", "id": "a", "url": "http://a/", "tools": [{"name": "f", "parameters": ` +
		`{"type": "object", "additionalProperties": false, "properties": {"roomName": {"type": "string"}}}}]}]`
	for name, load := range map[string]func() (Config, error){
		"file":     func() (Config, error) { return loadFile(t, "memory: {layers: "+layers+"}") },
		"variable": func() (Config, error) { return loadFile(t, "", "REMORA_MEMORY_LAYERS="+layers) },
	} {
		c, err := load()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tools, ok := c.Memory.layers.list[0].Impl.(layer.ToolProvider)
		if !ok {
			t.Fatalf("%s: a layer without tools", name)
		}
		const want = `{"additionalProperties":false,"properties":{"roomName":{"type":"string"}},"type":"object"}`
		if got := string(tools.Tools()[0].Parameters); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestLayerProblems(t *testing.T) {
	t.Parallel()
	f := func(layers, want string) {
		t.Helper()
		_, err := loadFile(t, "memory: {layers: "+layers+"}")
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", layers, err, want)
		}
	}
	kinds := strings.Join(layerKindNames(), ", ")
	f("[{max_items: 3}]", `memory.layers[0].kind: want one of `+kinds+`, have ""`)
	f("[{kind: 5}]", `memory.layers[0].kind: want one of `+kinds+`, have ""`)
	f("[{}]", `memory.layers[0].kind: want one of `+kinds+`, have ""`)
	f("[{kind: observational_memory, model: gpt-5-mini}]", "memory.layers[0].model: want a mapping, have text: its keys are model, provider")
	f("[x]", "memory.layers[0]: want a mapping, have text: its first key is kind")
	f("[{kind: history_window, max_items: 1.5}]",
		"memory.layers[0].max_items: INVALID_HISTORY_WINDOW_MAX_ITEMS: want a whole number from 2 to 10000, or 0 beside a limit by tokens, have 1.5")
	f("[{kind: history_window, max_items: many}]", `memory.layers[0].max_items: want a number, have "many"`)
	f("[{kind: history_window, max_items: '${NONE}'}]", "memory.layers[0].max_items: environment variable NONE is not set")
	f("[{kind: history_window, evict_batch: 40}]", "memory.layers[0].evict_batch: want 1 to max_items-1, have 40")
	for layer, key := range map[string]string{
		"{kind: history_manager, strategy: x}": "strategy", "{kind: working_memory, schema: '{'}": "schema",
		"{kind: observational_memory, observer: x}": "observer", "{kind: temporal_memory, time_zone: X/Y}": "time_zone",
		"{kind: steering}": "rules", "{kind: http}": "url", "{kind: static_content}": "text", "{kind: reminder}": "reminders",
		"{kind: tool_memory}": "tools", "{kind: file_reference}": "base_dir", "{kind: task_state, return_mode: x}": "return_mode",
	} {
		_, err := loadFile(t, "memory: {layers: ["+layer+"]}")
		if !strings.Contains(fmt.Sprint(err), "memory.layers[0]") || !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("%s: %v", layer, err)
		}
	}
	f("[{kind: steering, max_retries: 9, rules: [{id: a, applies_to: [never], when: x, action: explode}, {id: b, applies_to: [before_tool_call], model_check: {mode: x}}]}]",
		`memory.layers[0].max_retries: want 0 to 5
memory.layers[0].rules[0] (a).action: want deny, guide or allow
memory.layers[0].rules[0] (a).applies_to: want before_tool_call, after_model_call or both
memory.layers[0].rules[1] (b).model_check: needs the key model of the layer (MISSING_CALL_MODEL)
memory.layers[0].rules[1] (b).model_check.mode: want one of sync, async
memory.layers[0].rules[1] (b).model_check.prompt: want what the model is to look for`)
	f("[{kind: temporal_memory, recall_mode: eventual}]",
		"memory.layers[0].recall_mode: want atomic: temporal_memory shows other text for another message or at another time, not only when its state changes")
	for _, layer := range []string{"{kind: http, url: 'http://x', hooks: [recall]", "{kind: working_memory", "{kind: temporal_memory, ground_date_time: false"} {
		if _, err := loadFile(t, "memory: {layers: ["+layer+", recall_mode: eventual}]}"); err != nil {
			t.Errorf("%s: %v", layer, err)
		}
	}
	f("[{kind: working_memory, schema: '{', scope: x, max_bytes: many, budget: {min: 5, max: 1}}]",
		`memory.layers[0].budget.min: want at most budget.max, which is 1, have 5
memory.layers[0].max_bytes: want a whole number, or a size such as 64MiB, have "many"
memory.layers[0].schema: want a JSON schema as JSON text
memory.layers[0].scope: want one of execution, thread, resource, global, have "x"`)
	f("[{kind: observational_memory, observer: model, model: {model: 5}}]", "memory.layers[0].model.model: want text, have a number: put it in quotes")
	f("[{kind: steering, max_retries: many, rules: [{id: a, applies_to: [before_tool_call], when: 'tool.nam', action: deny}]}]",
		`memory.layers[0].max_retries: want a whole number, or a size such as 64MiB, have "many"
memory.layers[0].rules[0] (a).when: for before_tool_call: line 1, column 1: undeclared reference to 'tool'; there are tool.name, tool.arguments, tool.input, session, resource and model`)
	f("[{kind: history_window, in_flight: {a: b}}]", "memory.layers[0].in_flight: want text, have a mapping")
}

// TestJoinedErrorsKeepTheirPath: a prefix of joined errors becomes a prefix of each.
func TestJoinedErrorsKeepTheirPath(t *testing.T) {
	t.Parallel()
	var found problems
	found.addErrors("memory.layers[0]", errors.Join(errors.New("a: want 1"),
		fmt.Errorf("rules[0].%w", errors.Join(errors.New("b: want 2"), fmt.Errorf("c: %w", errors.Join(errors.New("x"), errors.New("y")))))))
	found.addErrors("memory.layers[1]", fmt.Errorf("d: %w", errors.New("read: line 1\nline 2: e")))
	want := "memory.layers[0].a: want 1\nmemory.layers[0].rules[0].b: want 2\nmemory.layers[0].rules[0].c: x\nmemory.layers[0].rules[0].c: y\n" +
		"memory.layers[1].d: read: line 1\nline 2: e"
	if diff := cmp.Diff(want, found.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestZeroWaitsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := loadFile(t, "store: {commit_wait: 0, session_ttl: 0}")
	if err == nil || err.Error() != "store.commit_wait: want more than 0 and at most 10m0s, have 0s" {
		t.Errorf("got %v", err)
	}
}

func TestValuesThatCannotBe(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"log: {level: 5}":                             "log.level: want debug, info, warn or error, have a number",
		"store: {url: 'redis://:hush@h:65536/2'}":     "store.url: want names or IP addresses, and ports from 1 to 65535",
		"store: {url: 'redis+cluster://a:1,b:70000'}": "store.url: want names or IP addresses, and ports from 1 to 65535",
	} {
		if _, err := loadFile(t, file); fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
	if _, err := loadFile(t, "store: {url: 'redis+sentinel://u:p:70000@a:1,[::1]:65535/m?sentinel_password=a:b'}"); err != nil {
		t.Error(err)
	}
}

func TestShowStoreURL(t *testing.T) {
	t.Parallel()
	f := func(url, want string) {
		t.Helper()
		if got := showStoreURL(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	f("bolt:remora.db", "bolt:remora.db")
	f("memory:", "memory:")
	f("redis://h:1/2", "redis://h:1/2")
	f("redis://:hush@h:1/2", "redis://h:1/2")
	f("rediss://u:hu@sh@h", "rediss://h")
	f("redis+sentinel://u:hush@a,b/m/0?sentinel_password=hush", "redis+sentinel://a,b/m/0")
}

// TestDefaultsFollowTheMemory: the defaults of body_bytes and index_max_bytes follow GOMEMLIMIT as the operator has set it, without
// the ballast.
func TestDefaultsFollowTheMemory(t *testing.T) {
	const goLimit = 512 << 20
	before := debug.SetMemoryLimit(goLimit)
	growth := debug.SetGCPercent(100)
	defer func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(growth)
	}()
	s := serveFlags{}
	from := s.sources(&cobra.Command{})
	ballast := tuneCollector()
	c, err := from.load()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.limits().Global.BodyBytes; got != goLimit/4 {
		t.Errorf("bodies get %d bytes, want %d", got, goLimit/4)
	}
	if got := c.indexBytes(); got != goLimit/4 {
		t.Errorf("indexes get %d bytes, want %d", got, goLimit/4)
	}
	c.Server.MaxConnections = math.MaxInt
	if found := c.mistakes(); len(found) != 1 || found[0].path != "server.max_connections" || !strings.Contains(found[0].text, " or less, or a higher limit (ulimit -n") {
		t.Error(found)
	}
	c.Server.MaxConnections = 100
	if found := c.mistakes(); len(found) > 0 {
		t.Error(found)
	}
	c.goLimit = 100 << 20
	if found := c.mistakes(); len(found) != 1 || found[0].path != "server.max_body" || !strings.Contains(found[0].text, "want 25MiB or less") {
		t.Error(found)
	}
	if got, want := c.limits().Global.BodyBytes, int64(c.Server.MaxBody); got != want {
		t.Errorf("a body of the largest size does not fit into %d", got)
	}
	c.goLimit = 32 << 20
	if got := c.indexBytes(); got != minIndexBytes {
		t.Errorf("indexes of a small process get %d bytes, want %d", got, minIndexBytes)
	}
	runtime.KeepAlive(ballast)
}

// TestOptionsOfWhatIsOff: options of retries and breakers that are off are reported, those of one that is on are not.
func TestOptionsOfWhatIsOff(t *testing.T) {
	c := &Config{Providers: []retry.Entry{
		{Resilience: retry.Options{Retry: retry.Retry{BaseDelay: time.Second}, Breaker: retry.Breaker{MinCalls: 3}}},
		{Resilience: retry.Options{Retry: retry.Retry{Attempts: 2, MaxDelay: time.Second}, Breaker: retry.Breaker{Failures: 1, MinCalls: 3}}},
		{Resilience: retry.Options{Retry: retry.Retry{On: []any{500}}}}, // counts for fallbacks, too
	}}
	var paths []string
	for _, p := range c.mistakes() {
		if strings.HasPrefix(p.path, "providers") {
			paths = append(paths, p.path)
		}
	}
	if want := []string{"providers[0].retry", "providers[0].breaker"}; !slices.Equal(paths, want) {
		t.Errorf("have %q, want %q", paths, want)
	}
}

// TestProviderIsNamedByItsKind: a provider without a name is referred to by its kind, and one with a name by nothing else.
func TestProviderIsNamedByItsKind(t *testing.T) {
	for name, c := range map[string]struct{ providers, model, layer, want string }{
		"by its kind":           {"{kind: openai}", "openai", "openai", ""},
		"by its name":           {"{name: main, kind: openai}", "main", "main", ""},
		"by the kind of a name": {"{name: main, kind: openai}", "openai", "openai", "models.known[0].provider: |memory.layers[0].model.provider: "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			text := fmt.Sprintf("providers: [%s]\nmodels: {known: [{provider: %s, name: m, context_length: 1000}]}\nmemory: {layers: [{kind: history_manager, model: {provider: %s, model: m}}]}\n",
				c.providers, c.model, c.layer)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := sources{file: path}.load()
			for want := range strings.SplitSeq(c.want, "|") {
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}
