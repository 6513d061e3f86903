// Command pulumi-resource-kubernetes is Pulumi's Kubernetes provider, unmodified.
//
// Upstream's own main package embeds two generated files that its module does not carry;
// the toolchain makes them from files that it does carry, beside a copy of this one.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

func main() {
	provider.Serve("kubernetes", version.Version, schema, terraformMapping)
}
