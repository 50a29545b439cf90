// Reads memory events from the start of the compacted topics with the CloudEvents SDK for Go, and keeps what holds now.
//
//	go run . -brokers 127.0.0.1:9092 -until-end
//
// It knows no file of Eden Memory but its contract: docs/asyncapi.yaml, schemas/json and schemas/examples.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
)

var topics = []string{"memory.facts", "memory.reflections", "memory.consolidations"}

const (
	factType       = "eden.FactChanged"
	reflectionType = "eden.ReflectionFormed"
	blobType       = "eden.ScopeConsolidated"
)

// known has the newest version of each type that this program has been checked against; older ones read the same.
var known = map[string]int{factType: 1, reflectionType: 1, blobType: 1}

// typeOf splits "eden.FactChanged.v1" into the type and its version.
func typeOf(about *event.Event) (string, int) {
	kind, number, _ := strings.Cut(about.Type(), ".v")
	version, err := strconv.Atoi(number)
	if err != nil {
		return about.Type(), math.MaxInt
	}
	return kind, version
}

// stated is what this program wants of the three events; fields that are not named here are ignored.
type stated struct {
	Scope     struct{ Key string }
	Text      string
	FactID    string  `json:"fact_id"`
	Hash      string  `json:"hash"`
	FormedAt  string  `json:"formed_at"` // RFC 3339 with three decimals in UTC: compares as text
	RetiredAt *string `json:"retired_at"`
	Absorbed  []string
}

type entity struct{ kind, id string }

// memory is what holds: entity → version → event. Any number of repeats in any order leave it the same.
type memory struct {
	mu         sync.Mutex
	held       map[entity]map[int]stated
	erased     map[string]bool // keys with a tombstone: "entity@version"
	passedOver int
}

// scope is what an agent would be shown of it.
type scope struct {
	Facts  map[string]string `json:"facts"`
	Buffer map[string]string `json:"buffer"`
	Blob   *string           `json:"blob"`
}

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "host:port,…")
	prefix := flag.String("prefix", "", "topic prefix of the installation")
	untilEnd := flag.Bool("until-end", false, "stop at the end that the topics have now")
	flag.Parse()

	client, err := sarama.NewClient(strings.Split(*brokers, ","), sarama.NewConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	seen := &memory{held: map[entity]map[int]stated{}, erased: map[string]bool{}}
	var reading sync.WaitGroup
	for _, topic := range topics {
		partitions, err := client.Partitions(*prefix + topic)
		if err != nil {
			log.Fatal(err)
		}
		for _, partition := range partitions {
			reading.Add(1)
			go func() {
				defer reading.Done()
				if err := read(client, *prefix+topic, partition, *untilEnd, seen); err != nil {
					log.Fatal(err)
				}
			}()
		}
	}
	reading.Wait()
	view, _ := json.Marshal(map[string]any{
		"scopes": seen.scopes(), "erased": len(seen.erased), "passed_over": seen.passedOver,
	})
	fmt.Println(string(view))
}

// read takes one partition from its first record; without a group nothing is committed and nobody is disturbed.
// sarama does not say its position: it waits where compaction has taken the last record before the end.
func read(client sarama.Client, topic string, partition int32, untilEnd bool, seen *memory) error {
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	first, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil || (untilEnd && first >= end) {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer reader.Close()
	for record := range reader.Messages() {
		if err := seen.take(record); err != nil {
			log.Printf("%s/%d@%d left out: %v", topic, partition, record.Offset, err)
		}
		if untilEnd && record.Offset >= end-1 {
			return nil
		}
	}
	return nil
}

func (m *memory) take(record *sarama.ConsumerMessage) error {
	about, err := binding.ToEvent(context.Background(), kafka_sarama.NewMessageFromConsumerMessage(record))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if record.Value == nil {
		m.erase(string(record.Key), about)
		return nil
	}
	return m.hold(string(record.Key), about)
}

// erase drops the version that a tombstone names, for ever.
func (m *memory) erase(key string, about *event.Event) {
	m.erased[key] = true
	id, version := split(key)
	kind, _ := typeOf(about)
	delete(m.held[entity{kind, id}], version)
	fmt.Printf("erased %q: %v\n", about.Subject(), about.Extensions()["reason"])
}

func (m *memory) hold(key string, about *event.Event) error {
	kind, number := typeOf(about)
	if number > known[kind] {
		m.passedOver++ // another type, or a version that is not known here
		fmt.Printf("passed over %s %q\n", about.Type(), key)
		return nil
	}
	var data stated
	if err := about.DataAs(&data); err != nil {
		return err
	}
	if !m.erased[key] { // else a late copy
		id, version := split(key)
		if m.held[entity{kind, id}] == nil {
			m.held[entity{kind, id}] = map[int]stated{}
		}
		m.held[entity{kind, id}][version] = data
	}
	fmt.Printf("%s %q %q\n", kind, key, data.Text)
	return nil
}

// scopes has the active facts of each scope, its buffer of reflections, and the text of its blob.
func (m *memory) scopes() map[string]*scope {
	found := map[string]*scope{}
	of := func(key string) *scope {
		if found[key] == nil {
			found[key] = &scope{Facts: map[string]string{}, Buffer: map[string]string{}}
		}
		return found[key]
	}
	for _, fact := range m.active() {
		of(fact.Scope.Key).Facts[fact.FactID] = fact.Text
	}
	absorbed := map[string]bool{}
	for one, versions := range m.held {
		for _, blob := range versions {
			for _, id := range blob.Absorbed {
				absorbed[id] = true
			}
		}
		if newest, ok := highest(versions); ok && one.kind == blobType {
			of(newest.Scope.Key).Blob = &newest.Text
		}
	}
	for one, versions := range m.held {
		reflection, ok := highest(versions)
		if ok && one.kind == reflectionType && reflection.RetiredAt == nil && !absorbed[one.id] {
			of(reflection.Scope.Key).Buffer[one.id] = reflection.Text
		}
	}
	return found
}

// active has the facts that are not retired; of those of one scope that say the same, the first.
func (m *memory) active() map[[2]string]stated {
	first := map[[2]string]stated{}
	for one, versions := range m.held {
		fact, ok := highest(versions)
		if !ok || one.kind != factType || fact.RetiredAt != nil {
			continue
		}
		same := [2]string{fact.Scope.Key, fact.Hash}
		other, there := first[same]
		if !there || fact.FormedAt+fact.FactID < other.FormedAt+other.FactID {
			first[same] = fact
		}
	}
	return first
}

// highest is the state of an entity: its highest version that is not erased.
func highest(versions map[int]stated) (stated, bool) {
	newest := 0
	for version := range versions {
		newest = max(newest, version)
	}
	one, ok := versions[newest]
	return one, ok
}

// split parts a key into entity and version; the first version of a reflection has no number.
func split(key string) (string, int) {
	at := strings.LastIndex(key, "@")
	if at < 0 {
		return key, 1
	}
	version, err := strconv.Atoi(key[at+1:])
	if err != nil {
		return key, 1
	}
	return key[:at], version
}
