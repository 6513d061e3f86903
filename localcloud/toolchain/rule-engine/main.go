// SPDX-License-Identifier: Apache-2.0

// Command rule-engine evaluates Prometheus rules over made-up series: rule-engine RULES <QUESTION >ANSWER
//
// Parser, query engine and alert states are Prometheus' own. RULES is a rule file. The question is JSON: series in the notation of
// Prometheus' rule tests, and the times, as durations from the start, at which to tell what fires.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

type question struct {
	// Interval is the time between two samples, and between two evaluations.
	Interval model.Duration   `json:"interval"`
	Series   []series         `json:"series"`
	At       []model.Duration `json:"at"`
}

type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type alert struct {
	Labels      labels.Labels `json:"labels"`
	Annotations labels.Labels `json:"annotations"`
	Value       float64       `json:"value"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rule-engine:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: rule-engine RULES <QUESTION >ANSWER")
	}
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return fmt.Errorf("question: %w", err)
	}
	answer, err := evaluate(os.Args[1], asked)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// evaluate returns what fires, by the time asked for.
func evaluate(file string, asked question) (map[string][]alert, error) {
	interval := time.Duration(asked.Interval)
	loader, err := promqltest.NewLazyLoader(loading(asked), promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	groups, err := load(file, interval, loader)
	if err != nil {
		return nil, err
	}
	answer := map[string][]alert{}
	var last time.Duration
	for _, at := range asked.At {
		last = max(last, time.Duration(at))
	}
	for since := time.Duration(0); since <= last; since += interval {
		now := time.Unix(0, 0).UTC().Add(since)
		var failed error
		loader.WithSamplesTill(now, func(err error) {
			failed = err
			for _, group := range groups {
				group.Eval(loader.Context(), now)
				for _, rule := range group.Rules() {
					failed = errors.Join(failed, rule.LastError())
				}
			}
		})
		if failed != nil {
			return nil, failed
		}
		for _, at := range asked.At {
			if since <= time.Duration(at) && time.Duration(at) < since+interval {
				answer[at.String()] = firing(groups)
			}
		}
	}
	return answer, nil
}

func loading(asked question) string {
	lines := []string{"load " + asked.Interval.String()}
	for _, one := range asked.Series {
		lines = append(lines, "  "+one.Series+" "+one.Values)
	}
	return strings.Join(lines, "\n")
}

func load(file string, interval time.Duration, loader *promqltest.LazyLoader) (map[string]*rules.Group, error) {
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:    rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()),
		AppendableV2: loader.Storage(),
		Context:      context.Background(),
		NotifyFunc:   func(context.Context, string, ...*rules.Alert) {},
		Logger:       promslog.NewNopLogger(),
		Parser:       parser.NewParser(parser.Options{}),
	})
	groups, failures := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if failures != nil {
		return nil, errors.Join(failures...)
	}
	for _, group := range groups {
		for _, rule := range group.Rules() {
			if alerting, is := rule.(*rules.AlertingRule); is {
				alerting.SetRestored(true)
			}
		}
	}
	return groups, nil
}

func firing(groups map[string]*rules.Group) []alert {
	found := []alert{}
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			for _, one := range rule.ActiveAlerts() {
				if one.State == rules.StateFiring {
					found = append(found, alert{Labels: one.Labels, Annotations: one.Annotations, Value: one.Value})
				}
			}
		}
	}
	return found
}
