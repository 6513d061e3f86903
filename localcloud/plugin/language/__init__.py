# SPDX-License-Identifier: Apache-2.0
"""A language host: how the engine runs Python programs, policy packs and providers.

Stands in for the official `pulumi-language-python`, which package registries do not carry, and is used only where that
is not installed. It does not generate code (`pulumi import`, `convert`, `package add` need the official one).
"""
