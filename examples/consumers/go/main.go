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
	"strconv"
	"strings"
	"sync"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
)

var topics = []string{"memory.facts", "memory.reflections", "memory.consolidations"}

// memory is what holds: entity → version → text. Any number of repeats in any order leave it the same.
type memory struct {
	mu     sync.Mutex
	held   map[string]map[int]string
	erased map[string]bool // keys with a tombstone: "entity@version"
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
	seen := &memory{held: map[string]map[int]string{}, erased: map[string]bool{}}
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
	summary, _ := json.Marshal(map[string]int{"held": len(seen.held), "erased": len(seen.erased)})
	fmt.Println(string(summary))
}

// read takes one partition from its first record; without a group nothing is committed and nobody is disturbed.
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
	entity, version := split(key)
	delete(m.held[entity], version)
	if len(m.held[entity]) == 0 {
		delete(m.held, entity)
	}
	fmt.Printf("erased %q: %v\n", about.Subject(), about.Extensions()["reason"])
}

func (m *memory) hold(key string, about *event.Event) error {
	var data struct {
		Text string `json:"text"` // fields that are not named here are ignored: a later version may have more
	}
	if err := about.DataAs(&data); err != nil {
		return err
	}
	if m.erased[key] || data.Text == "" {
		return nil
	}
	entity, version := split(key)
	if m.held[entity] == nil {
		m.held[entity] = map[int]string{}
	}
	m.held[entity][version] = data.Text
	fmt.Printf("%s %q %q\n", about.Type(), key, data.Text)
	return nil
}

// split parts a key into entity and version; reflections have one version only.
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
